"""Determine which kernel a tool call is about: a complete file, edits, or the kernel of the question's last call."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from optimizer.agents.anchors import read_anchored
from optimizer.agents.answer_base import Basis
from optimizer.agents.code_blocks import MAX_SOURCE_BYTES, AnswerError, Fault, apply_edits, split_edits
from optimizer.agents.copies import edits_with_copies, text_with_copies
from optimizer.agents.kernel_answers import BlockAnswer
from optimizer.text.markdown import fenced
from optimizer.tools.catalogue import BlockArguments, KernelArguments, SubmitArguments
from runners.job import Language


@dataclass(frozen=True)
class Draft:
    """Hold a kernel that a writer works on.

    `is_original_edited` tells that edits were applied to the source of the question, though there was a later kernel.
    """

    text: str
    language: Language
    is_original_edited: bool = False


def draft_of(arguments: KernelArguments, last: Draft | None, basis: Basis | None, language: Language) -> Draft:
    """Return the kernel that the arguments name; `last` is that of the last call, `language` the task's.

    Raises AnswerError with a message for the model.
    """
    named = _named(arguments.language) if arguments.language else language
    if isinstance(arguments, BlockArguments) and (arguments.source or arguments.blocks or arguments.edits):
        return _with_blocks(arguments, last, basis)
    if arguments.source.strip():
        known = last or basis
        return Draft(_ended(text_with_copies(_lines(arguments.source), known.text if known else "")), named)
    if arguments.edits.strip():
        return _edited(arguments.edits, last, basis)
    if last is None:
        raise AnswerError(
            Fault.NO_CODE,
            "There is no kernel yet: none could be read from your calls so far. Send it with this one.",
        )
    return replace(last, is_original_edited=False)


def stands_alone(arguments: KernelArguments) -> bool:
    """Return whether the arguments name a kernel without that of the last call."""
    in_blocks = isinstance(arguments, BlockArguments) and bool(arguments.blocks)
    return in_blocks or bool(arguments.source.strip())


def answer_text(draft: Draft, arguments: SubmitArguments) -> str:
    """Return a submission in the form of an answer without tools, so that both are read by the same parser."""
    labelled = {
        "TITLE": " ".join(arguments.title.split()),
        "REPORT": arguments.report,
        "RUBRIC": " ".join(arguments.rubric.split()),
    }
    # A fence in the report would be taken for the kernel's.
    lines = [f"{label}: {said.strip().replace('```', '` ` `')}" for label, said in labelled.items() if said.strip()]
    return "\n".join([*lines, "", fenced(draft.text, draft.language.value)])


def _named(language: str) -> Language:
    """Return the language of that name. Raises AnswerError."""
    try:
        return Language(language.strip().lower())
    except ValueError:
        raise AnswerError(Fault.WRONG_SHAPE, f"There is no language {language[:20]!r}.") from None


def _with_blocks(arguments: BlockArguments, last: Draft | None, basis: Basis | None) -> Draft:
    """Put new content into the marked blocks of the source, as the role's own answers do. Raises AnswerError.

    Edits change the kernel of the last call. Where they do not fit it, they may be all changes of the source anew, as
    an answer without tools would have them.
    """
    if last is None or basis is None or arguments.source or arguments.blocks:
        return _answered(arguments.edits or "\n".join(map(fenced, arguments.blocks or [arguments.source])), basis)
    try:
        return _edited_blocks(arguments.edits, last, basis)
    except AnswerError as error:
        # A kernel that was never built is not submitted by an oversight.
        if error.fault is Fault.SEARCH_MISSING and not isinstance(arguments, SubmitArguments):
            with suppress(AnswerError):
                return replace(_answered(arguments.edits, basis), is_original_edited=True)
        raise


def _answered(written: str, basis: Basis | None) -> Draft:
    answer = BlockAnswer.read(written, basis)
    return Draft(_ended(answer.source), answer.language or Language(basis.language if basis else ""))


def _edited_blocks(edits: str, last: Draft, basis: Basis) -> Draft:
    anchored = read_anchored(basis.text)
    contents = anchored.contents_in(_edited(edits, last, basis).text)
    if contents is None:
        raise AnswerError(Fault.WRONG_SHAPE, "The edits change lines outside the marked blocks.")
    return Draft(_ended(anchored.replaced(contents)), last.language)


def _edited(edits: str, last: Draft | None, basis: Basis | None) -> Draft:
    below = last or (Draft(basis.text, Language(basis.language)) if basis else None)
    if below is None:
        raise AnswerError(Fault.NO_BASIS, "There is no kernel to edit here. Give the complete file as `source`.")
    found, _ = split_edits(_lines(edits))
    if not found:
        raise AnswerError(Fault.MALFORMED_EDIT, "`edits` has no SEARCH/REPLACE block.")
    return Draft(_ended(apply_edits(below.text, edits_with_copies(found, below.text))), below.language)


def _ended(text: str) -> str:
    """Return the text with one newline at its end, so that a kernel is the same however it was sent.

    Raises AnswerError for a text that is longer than a kernel may be: a few words of an edit can copy much of it, in
    call after call.
    """
    ended = _lines(text).rstrip() + "\n"
    if len(ended.encode()) > MAX_SOURCE_BYTES:
        raise AnswerError(Fault.TOO_LONG, f"The kernel is longer than {MAX_SOURCE_BYTES // 1024} KiB.")
    return ended


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")

"""Define the answers that are kernels: a complete file, edits of one, or new content of marked blocks."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field

from optimizer.agents.anchors import LONG_LINES, SHORT_LINE, Anchored, read_anchored, without_anchors
from optimizer.agents.answer_base import Basis, TextAnswer, register
from optimizer.agents.code_blocks import (
    MAX_SOURCE_BYTES,
    AnswerError,
    Edit,
    Fault,
    apply_edits,
    has_edits,
    only_block,
    places_of,
    split_blocks,
    split_edits,
)
from optimizer.agents.copies import edits_with_copies, text_with_copies
from optimizer.text.shortening import shortened
from runners.job import Language

MAX_REPORT_CHARACTERS = 20_000
# A label stands on one line: with line ends in its repetitions, blank lines would cost quadratic time.
_LABEL = re.compile(r"^[#* \t]*(TITLE|REPORT|RUBRIC)[* \t]*:[* \t]*", re.IGNORECASE | re.MULTILINE)


@register
class KernelAnswer(TextAnswer):
    """Hold a kernel: a complete one in a single code block, or SEARCH/REPLACE edits of the basis.

    Both may copy lines of the basis (`optimizer.agents.copies`). The text around the code is the writer's report and
    its statement on whether the experiment's rubric was followed. `language` is None where the answer does not say.
    `edits` is 0 for a complete kernel.
    """

    source: str
    language: Language | None = None
    title: str = ""
    report: str = ""
    rubric_followed: str = ""
    edits: int = Field(default=0, ge=0)

    @classmethod
    def read(cls, text: str, basis: Basis | None) -> Self:
        """Parse the kernel. Raises AnswerError."""
        answer = cls._edited(text, basis) if has_edits(text) else cls._complete(text, basis)
        _sized(answer.source)
        return answer

    @classmethod
    def _complete(cls, text: str, basis: Basis | None) -> Self:
        block, prose = only_block(text)
        source = without_anchors(text_with_copies(block.text, basis.text if basis else ""))
        if not source.strip():
            raise AnswerError(Fault.NO_CODE, "The code block is empty. Put the complete kernel into it.")
        return cls(source=source, language=language_named(block.info), **told_around(prose))

    @classmethod
    def _edited(cls, text: str, basis: Basis | None) -> Self:
        edits, prose = split_edits(text)
        if basis is None:
            raise AnswerError(Fault.NO_BASIS, "There is no kernel to edit here. Send the complete kernel instead.")
        source = without_anchors(apply_edits(basis.text, edits_with_copies(edits, basis.text)))
        if not source.strip():
            raise AnswerError(Fault.NO_CODE, "The edits leave nothing of the kernel.")
        return cls(source=source, language=Language(basis.language), edits=len(edits), **told_around(prose))


@register
class BlockAnswer(KernelAnswer):
    """Hold a kernel of which the coder wrote only the marked blocks. The rest is copied from the source.

    The answer has one code block for each marked block, in their order, or SEARCH/REPLACE edits inside them. A complete
    file is taken too if it changes no other line. The basis is the anchored source.
    """

    @classmethod
    def read(cls, text: str, basis: Basis | None) -> Self:
        """Parse the new blocks and put them into the source. Raises AnswerError."""
        if basis is None:
            raise AnswerError(Fault.NO_BASIS, "There are no marked blocks here. Send the complete kernel instead.")
        anchored = read_anchored(basis.text)
        blocks, prose = _edited_blocks(text, anchored) if has_edits(text) else _new_blocks(text, anchored)
        source = _sized(anchored.replaced(blocks))
        return cls(source=source, language=Language(basis.language), edits=len(blocks), **told_around(prose))


def _new_blocks(text: str, anchored: Anchored) -> tuple[list[str], str]:
    """Return the new content of every marked block, and the text around the code. Raises AnswerError."""
    blocks, prose = split_blocks(text)
    source = "\n".join(anchored.lines)
    if len(blocks) == 1 and anchored.is_mostly_unmarked():
        contents = anchored.contents_in(blocks[0].text)
        if contents is not None:
            return [text_with_copies(content, source) for content in contents], prose
        # A complete file may name the lines around its blocks, too.
        contents = anchored.contents_in(text_with_copies(blocks[0].text, source))
        if contents is not None:
            return contents, prose
    wanted = len(anchored.spans)
    if len(blocks) != wanted:
        fault = Fault.SEVERAL_BLOCKS if len(blocks) > wanted else Fault.NO_CODE
        raise AnswerError(
            fault, f"{wanted} blocks are marked, and the answer has {len(blocks)} code blocks. Send one for each."
        )
    outside = {line.strip() for line in anchored.unmarked() if len(line.strip()) > SHORT_LINE}
    for block in blocks:
        repeated = {line.strip() for line in block.text.splitlines()} & outside
        if len(repeated) > max(LONG_LINES, len(outside) / 2) or (repeated == outside and len(outside) > 1):
            raise AnswerError(
                Fault.WRONG_SHAPE,
                "The answer repeats the file and changes it outside the marked blocks. Send only their new content.",
            )
    return [text_with_copies(block.text, source) for block in blocks], prose


def _edited_blocks(text: str, anchored: Anchored) -> tuple[list[str], str]:
    """Return the marked blocks with the answer's edits applied, and the text around them. Raises AnswerError."""
    edits, prose = split_edits(text)
    edits = edits_with_copies(edits, "\n".join(anchored.lines))
    blocks = anchored.blocks()
    mine: list[list[Edit]] = [[] for _ in blocks]
    found = [places_of(edits, block) for block in blocks]
    for number, edit in enumerate(edits, 1):
        where = [at for at, places in enumerate(found) if places[number - 1].count]
        if len(where) != 1:
            fault = Fault.SEARCH_AMBIGUOUS if where else Fault.SEARCH_MISSING
            raise AnswerError(
                fault, f"Edit {number}: its SEARCH text must be inside one marked block, and is in {len(where)}."
            )
        mine[where[0]].append(edit)
    return [apply_edits(block, own) for block, own in zip(blocks, mine, strict=True)], prose


def _sized(source: str) -> str:
    """Return the source unless it is too long. Raises AnswerError."""
    if len(source.encode()) > MAX_SOURCE_BYTES:
        raise AnswerError(Fault.TOO_LONG, f"The kernel is longer than {MAX_SOURCE_BYTES // 1024} KiB.")
    return source


def language_named(info: str) -> Language | None:
    """Return the language that a code block's label names unambiguously (`python` may be Triton or plain Python)."""
    return {"c++": Language.CPP, "cpp": Language.CPP, "hip": Language.HIP, "cuda": Language.CUDA, "cu": Language.CUDA,
            "triton": Language.TRITON}.get(info)  # fmt: skip


def told_around(prose: str) -> dict[str, str]:
    """Parse the text around the code by its labels TITLE:, REPORT: and RUBRIC:.

    Title and rubric take one line each. Unlabelled text belongs to the report.
    """
    before, *labelled = _LABEL.split(prose[:MAX_REPORT_CHARACTERS])
    said = {"TITLE": "", "RUBRIC": ""}
    report = [before]
    for label, text in zip(labelled[::2], labelled[1::2], strict=True):
        first, _, rest = text.partition("\n")
        if label.upper() in said:
            said[label.upper()] = first.strip(" *")
            report.append(rest)
        else:
            report.append(text)
    told = "\n".join(part.strip() for part in report if part.strip())
    return {"title": shortened(said["TITLE"]), "report": told, "rubric_followed": said["RUBRIC"][:400]}

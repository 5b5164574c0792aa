"""Parse code in a model's answer: fenced blocks, and SEARCH/REPLACE edits of a text that both sides know.

Everything here is a pure function of hostile text. It ends in a result or in an AnswerError whose message tells the
model, in its own terms, what to do differently. The run time is linear in the lengths of the answer and of the basis.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from optimizer.agents.line_search import Places, find_blocks

MAX_SOURCE_BYTES = 512 * 1024
# Possessive repetitions (`*+`): trying every division of a long line between them would take quadratic time.
_FENCE = re.compile(r"^ {0,3}(?P<mark>`{3,}+|~{3,}+)[ \t]*+(?P<info>[^\s`]*+)[^`\n]*+$")
_SEARCH = re.compile(r"^\s*<{5,9} ?SEARCH\b")
_DIVIDER = re.compile(r"^\s*={5,9}\s*$")
_REPLACE = re.compile(r"^\s*>{5,9} ?REPLACE\b")
_THOUGHT = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)


class Fault(StrEnum):
    """List what can be wrong with an answer."""

    EMPTY = "empty"
    REFUSED = "refused"
    TRUNCATED = "truncated"
    TOO_LONG = "too_long"
    NO_CODE = "no_code"
    SEVERAL_BLOCKS = "several_blocks"
    UNCLOSED_BLOCK = "unclosed_block"
    MALFORMED_EDIT = "malformed_edit"
    SEARCH_MISSING = "search_missing"
    SEARCH_AMBIGUOUS = "search_ambiguous"
    NO_BASIS = "no_basis"
    NOT_JSON = "not_json"
    WRONG_SHAPE = "wrong_shape"


class AnswerError(ValueError):
    """Report an answer that cannot be used; the message is addressed to its sender."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault

    @property
    def repairable(self) -> bool:
        """Return whether naming the fault may bring a usable answer. A refusal is not asked again."""
        return self.fault is not Fault.REFUSED


@dataclass(frozen=True)
class Block:
    """Hold a fenced block. `info` is the word after the fence, in lower case."""

    info: str
    text: str


@dataclass(frozen=True)
class Edit:
    """Hold lines to find in the basis and the lines that replace them."""

    search: tuple[str, ...]
    replace: tuple[str, ...]


def without_thoughts(text: str) -> str:
    """Remove the leading <think>…</think> that open reasoning models write before their answer."""
    return _THOUGHT.sub("", text, count=1)


def split_blocks(text: str) -> tuple[list[Block], str]:
    """Return the fenced blocks and the prose around them. Raises AnswerError for a block that is never closed.

    Fences follow CommonMark: a block is closed by the same mark, at least as long.
    """
    blocks: list[Block] = []
    prose: list[str] = []
    inside: list[str] = []
    mark = info = ""
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if not mark and match:
            mark, info, inside = match["mark"], match["info"].lower(), []
        # A shorter fence, or one of the other kind, belongs to the content of the block.
        elif mark and match and _closes(match, mark):
            blocks.append(Block(info, "\n".join(inside) + "\n"))
            mark = ""
        else:
            (inside if mark else prose).append(line)
    if mark:
        raise AnswerError(
            Fault.UNCLOSED_BLOCK,
            "The code block is never closed: the answer may have been cut. Send the whole kernel.",
        )
    return blocks, "\n".join(prose).strip()


def only_block(text: str) -> tuple[Block, str]:
    """Return the answer's single code block and the prose around it. Raises AnswerError for none, several or an empty
    one.
    """
    blocks, prose = split_blocks(text)
    if not blocks:
        raise AnswerError(Fault.NO_CODE, "There is no code block. Put the complete kernel into one ``` block.")
    if len(blocks) > 1:
        raise AnswerError(
            Fault.SEVERAL_BLOCKS,
            f"There are {len(blocks)} code blocks, so it is unclear which is the kernel. Send exactly one.",
        )
    if not blocks[0].text.strip():
        raise AnswerError(Fault.NO_CODE, "The code block is empty. Put the complete kernel into it.")
    return blocks[0], prose


def has_edits(text: str) -> bool:
    """Return True when the answer is meant as SEARCH/REPLACE edits."""
    return any(_SEARCH.match(line) for line in text.split("\n"))


def split_edits(text: str) -> tuple[list[Edit], str]:
    """Return SEARCH/REPLACE edits and the prose around them, ignoring fences around edits. Raises AnswerError."""
    edits: list[Edit] = []
    prose: list[str] = []
    search: list[str] | None = None
    replace: list[str] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if _SEARCH.match(line):
            # Nested markers are an error rather than content: a lost REPLACE would otherwise swallow the next edit.
            if search is not None:
                raise _malformed(number, "a SEARCH begins inside another")
            search = []
        elif search is None:
            _expect_prose(line, number)
            prose.append(line)
        elif _REPLACE.match(line):
            if replace is None:
                raise _malformed(number, "a ======= line is missing between SEARCH and REPLACE")
            edits.append(_edit(search, replace, number))
            search = replace = None
        # Only the first divider separates the two parts; later ones are content, such as underlined headings.
        elif replace is None and _DIVIDER.match(line):
            replace = []
        else:
            # Lines of an edit are content even when they look like prose or fences.
            (search if replace is None else replace).append(line)
    if search is not None:
        raise AnswerError(Fault.MALFORMED_EDIT, "The last edit has no >>>>>>> REPLACE line: the answer may be cut.")
    return edits, "\n".join(line for line in prose if not _FENCE.match(line)).strip()


def apply_edits(basis: str, edits: Sequence[Edit]) -> str:
    """Return `basis` with all edits applied. Raises AnswerError.

    Every SEARCH is looked up in the basis as given, must occur exactly once (ignoring trailing spaces), and must not
    overlap another.
    """
    lines = basis.split("\n")
    # Apply in order of position, so that the line numbers of later edits stay valid.
    places = sorted(
        (_only_place(found, edit, number), number, edit)
        for number, (edit, found) in enumerate(zip(edits, places_of(edits, basis), strict=True), 1)
    )
    result: list[str] = []
    position = 0
    for start, number, edit in places:
        # Overlapping edits have no defined result, whichever is applied first.
        if start < position:
            raise AnswerError(Fault.MALFORMED_EDIT, f"Edit {number} overlaps another edit. Join them into one.")
        result += lines[position:start]
        result += edit.replace
        position = start + len(edit.search)
    return "\n".join(result + lines[position:])


def places_of(edits: Sequence[Edit], text: str) -> list[Places]:
    """Return where the SEARCH of each edit occurs in a text."""
    # Models drop trailing spaces when they copy lines, so these are not compared.
    wanted = [[line.rstrip() for line in edit.search] for edit in edits]
    return find_blocks(wanted, [line.rstrip() for line in text.split("\n")])


def fence_after(line: str, fence: str) -> str:
    """Return the mark of the fence that is open after a line, or an empty text. `fence` is open before it."""
    match = _FENCE.match(line)
    if match is None or (fence and not _closes(match, fence)):
        return fence
    return "" if fence else str(match["mark"])


def _closes(match: re.Match[str], mark: str) -> bool:
    found = match["mark"]
    return not match["info"] and found[0] == mark[0] and len(found) >= len(mark)


def _expect_prose(line: str, number: int) -> None:
    if _REPLACE.match(line):
        raise _malformed(number, "a REPLACE line without its SEARCH")


def _edit(search: list[str], replace: list[str], number: int) -> Edit:
    if not any(line.strip() for line in search):
        raise _malformed(number, "the SEARCH part is empty; name the lines to replace")
    return Edit(tuple(search), tuple(replace))


def _malformed(number: int, why: str) -> AnswerError:
    return AnswerError(Fault.MALFORMED_EDIT, f"Line {number} of the answer: {why}.")


def _only_place(found: Places, edit: Edit, number: int) -> int:
    """Return the index of the only line at which the edit's SEARCH begins. Raises AnswerError."""
    # An edit's SEARCH has a line that is not empty, see `_edit`.
    shown = next(line.strip() for line in edit.search if line.strip())[:80]
    if not found.count:
        raise AnswerError(
            Fault.SEARCH_MISSING,
            f"Edit {number}: the SEARCH text (with “{shown}”) is not in the kernel. Copy the lines exactly.",
        )
    if found.count > 1:
        raise AnswerError(
            Fault.SEARCH_AMBIGUOUS,
            f"Edit {number}: the SEARCH text (with “{shown}”) occurs {found.count} times, at lines "
            f"{', '.join(str(place + 1) for place in found.first)}. Add lines around it until it is unique.",
        )
    return found.first[0]

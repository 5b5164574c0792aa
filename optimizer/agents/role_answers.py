"""Define the answers of the papers' agents: selector, designer, planner, findings, digests and notes."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import Field, StringConstraints

from optimizer.agents.anchors import Anchored, AnchorError, marked_blocks, place, read_anchored
from optimizer.agents.answers import Basis, JsonAnswer, KernelAnswer, TextAnswer, register, told_around
from optimizer.agents.code_blocks import (
    AnswerError,
    Edit,
    Fault,
    apply_edits,
    contains,
    has_edits,
    only_block,
    split_blocks,
    split_edits,
)
from runners.job import Language

Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=300)]
Paragraph = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=6000)]
# Bounds of a predicted gain in per cent: a kernel cannot lose more than all its speed, and a factor of a thousand
# is no serious prediction.
LEAST_GAIN, MOST_GAIN = -100, 100_000
Per_cent = Annotated[float, Field(ge=LEAST_GAIN, le=MOST_GAIN)]

# Characters up to which a line says nothing about where it comes from.
SHORT_LINE = 8

_GAIN = re.compile(r"([-+]?\d+(?:\.\d+)?)\s*%?\s*(?:to|–|-|…|\.\.)\s*([-+]?\d+(?:\.\d+)?)")
_LABEL = re.compile(r"^[#*\s]*(TITLE|INSTRUCTION|GAIN)\s*:\s*\**", re.IGNORECASE | re.MULTILINE)


@register
class SelectorAnswer(JsonAnswer):
    """Name Base and Reference by kernel number (GPU Kernel Scientist, section 3.1)."""

    basis_code: int = Field(ge=0)
    basis_reference: int = Field(ge=0)
    rationale: Paragraph


class Avenue(JsonAnswer):
    """Describe a direction in one sentence."""

    title: Line
    sentence: Paragraph


class ExperimentAnswer(JsonAnswer):
    """Describe one experiment; `performance` is the expected gain in per cent, minimum and maximum."""

    title: Line
    description: Paragraph
    rubric: Paragraph
    performance: Annotated[list[Per_cent], Field(min_length=2, max_length=2)]
    innovation: int = Field(ge=0, le=100)


@register
class DesignerAnswer(JsonAnswer):
    """List avenues first, then experiments (section 3.2).

    The paper asks for 10 and 5. An answer with fewer is still used, but the selection needs three experiments.
    """

    analysis: Paragraph
    avenues: Annotated[list[Avenue], Field(min_length=1, max_length=60)]
    experiments: Annotated[list[ExperimentAnswer], Field(min_length=3, max_length=30)]


@register
class FindingsAnswer(JsonAnswer):
    """List new facts; the list may be empty."""

    findings: Annotated[list[Paragraph], Field(max_length=20)]


@register
class DigestAnswer(JsonAnswer):
    """Condense hardware knowledge for one kernel."""

    digest: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000)]


@register
class NotesAnswer(JsonAnswer):
    """Write meta notes on a run."""

    notes: Annotated[list[Paragraph], Field(min_length=1, max_length=20)]


@register
class PlanAnswer(TextAnswer):
    """Hold STARK's grounded instruction (arXiv 2510.16996, section 4.3): words, and the source with anchors.

    The answer may contain the marked blocks alone; `anchored` is always the whole source.
    """

    title: str
    instruction: str
    anchored: str
    predicted_min: float | None = None
    predicted_max: float | None = None

    @classmethod
    def read(cls, text: str, basis: Basis | None) -> Self:
        """Parse the plan and find its blocks in the source, so that a planner who marked what is not there is asked
        again. Raises AnswerError.
        """
        block, prose = only_block(text)
        try:
            anchored, advice = _anchored(block.text, basis)
        except AnchorError as error:
            raise AnswerError(Fault.WRONG_SHAPE, str(error)) from error
        labelled = _labelled(prose)
        instruction = labelled.get("INSTRUCTION") or advice or prose.strip()
        if not instruction:
            raise AnswerError(
                Fault.WRONG_SHAPE, "There is no instruction, neither before the code nor in the block."
            )
        low, high = _gain(labelled.get("GAIN", ""))
        title = labelled.get("TITLE") or instruction.splitlines()[0]
        return cls(
            title=title[:200], instruction=instruction[:20_000], anchored=anchored,
            predicted_min=low, predicted_max=high,
        )  # fmt: skip


def _anchored(text: str, basis: Basis | None) -> tuple[str, str]:
    """Return the source with its anchors, and the advice between them. Raises AnchorError."""
    if basis is None:
        marked_blocks(text)
        return text, ""
    found = place(text, basis.text)
    return found.text(basis.language), "\n".join(found.advice).strip()


@register
class BlockAnswer(KernelAnswer):
    """Hold a kernel of which the coder has written the marked blocks alone: everything else is the source's own.

    The answer has one code block for each marked block, in their order, or SEARCH/REPLACE edits inside them. The basis
    is the anchored source.
    """

    @classmethod
    def read(cls, text: str, basis: Basis | None) -> Self:
        """Parse the new blocks and put them into the source. Raises AnswerError."""
        if basis is None:
            raise AnswerError(Fault.NO_BASIS, "There are no marked blocks here. Send the complete kernel instead.")
        anchored = read_anchored(basis.text)
        blocks, prose = _edited_blocks(text, anchored) if has_edits(text) else _new_blocks(text, anchored)
        source = anchored.replaced(blocks)
        return cls(source=source, language=Language(basis.language), edits=len(blocks), **told_around(prose))


def _new_blocks(text: str, anchored: Anchored) -> tuple[list[str], str]:
    """Return the new content of every marked block, and the words around. Raises AnswerError."""
    blocks, prose = split_blocks(text)
    wanted = len(anchored.spans)
    if len(blocks) != wanted:
        fault = Fault.SEVERAL_BLOCKS if len(blocks) > wanted else Fault.NO_CODE
        raise AnswerError(
            fault, f"{wanted} blocks are marked, and the answer has {len(blocks)} code blocks. Send one for each."
        )
    # Braces and the like occur everywhere.
    outside = {line.strip() for line in anchored.unmarked() if len(line.strip()) > SHORT_LINE}
    for block in blocks:
        repeated = {line.strip() for line in block.text.splitlines()} & outside
        if len(repeated) > max(3, len(outside) / 2):
            raise AnswerError(
                Fault.WRONG_SHAPE, "The answer repeats the file. Send the new content of the marked blocks alone."
            )
    return [block.text for block in blocks], prose


def _edited_blocks(text: str, anchored: Anchored) -> tuple[list[str], str]:
    """Return the marked blocks with the answer's edits applied, and the words around. Raises AnswerError."""
    edits, prose = split_edits(text)
    blocks = anchored.blocks()
    mine: list[list[Edit]] = [[] for _ in blocks]
    for number, edit in enumerate(edits, 1):
        where = [at for at, block in enumerate(blocks) if contains(block, edit)]
        if len(where) != 1:
            fault = Fault.SEARCH_AMBIGUOUS if where else Fault.SEARCH_MISSING
            raise AnswerError(
                fault, f"Edit {number}: its SEARCH text must be inside one marked block, and is in {len(where)}."
            )
        mine[where[0]].append(edit)
    return [apply_edits(block, own) for block, own in zip(blocks, mine, strict=True)], prose


def _labelled(prose: str) -> dict[str, str]:
    """Return the parts of an answer behind the labels TITLE:, INSTRUCTION: and GAIN:."""
    marks = list(_LABEL.finditer(prose))
    ends = [mark.start() for mark in marks[1:]] + [len(prose)]
    return {m.group(1).upper(): prose[m.end() : end].strip() for m, end in zip(marks, ends, strict=False)}


def _gain(text: str) -> tuple[float | None, float | None]:
    """Return minimum and maximum gain in per cent, or None twice where no plausible range is named.

    Typographic minus signs are accepted.
    """
    # Only the typographic minus sign: a dash may also separate the two numbers.
    match = _GAIN.search(text.replace("\N{MINUS SIGN}", "-"))
    if match is None:
        return None, None
    low, high = sorted(float(number) for number in match.groups())
    return (low, high) if low >= LEAST_GAIN and high <= MOST_GAIN else (None, None)

"""Define the answers of the papers' agents: selector, designer, planner, findings, digests and notes."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import Field, StringConstraints

from optimizer.agents.anchors import AnchorError, marked_blocks, place
from optimizer.agents.answer_base import Basis, JsonAnswer, TextAnswer, register
from optimizer.agents.code_blocks import AnswerError, Fault, only_block
from optimizer.text.shortening import shortened

Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=300)]
Paragraph = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=6000)]
# Bounds of a predicted gain in per cent: a kernel cannot lose more than all its speed, and a factor of a thousand
# is no serious prediction.
LEAST_GAIN, MOST_GAIN = -100, 100_000
Per_cent = Annotated[float, Field(ge=LEAST_GAIN, le=MOST_GAIN)]

# A range of gains is short. In a longer text, the pattern would try every part of a row of digits.
MAX_GAIN_CHARACTERS = 200
_GAIN = re.compile(r"([-+]?\d+(?:\.\d+)?)\s*%?\s*(?:to|–|-|…|\.\.)\s*([-+]?\d+(?:\.\d+)?)")
# A label stands on one line: with line ends in its repetitions, blank lines would cost quadratic time.
_LABEL = re.compile(r"^[#* \t]*(TITLE|INSTRUCTION|GAIN)[ \t]*:[ \t]*\**", re.IGNORECASE | re.MULTILINE)


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
class LibrarianAnswer(JsonAnswer):
    """List the findings that replace those of the prompt. The list must not be empty, or all of them would be lost."""

    findings: Annotated[list[Paragraph], Field(min_length=1, max_length=40)]


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
            title=shortened(title), instruction=instruction[:20_000], anchored=anchored,
            predicted_min=low, predicted_max=high,
        )  # fmt: skip


def _anchored(text: str, basis: Basis | None) -> tuple[str, str]:
    """Return the source with its anchors, and the advice between them. Raises AnchorError."""
    if basis is None:
        marked_blocks(text)
        return text, ""
    found = place(text, basis.text)
    return found.text(basis.language), "\n".join(found.advice).strip()


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
    match = _GAIN.search(text[:MAX_GAIN_CHARACTERS].replace("\N{MINUS SIGN}", "-"))
    if match is None:
        return None, None
    low, high = sorted(float(number) for number in match.groups())
    return (low, high) if low >= LEAST_GAIN and high <= MOST_GAIN else (None, None)

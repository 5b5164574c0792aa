"""Compare a kernel with the one that it is to replace, and decide whether it may.

The two are timed in turns by the harness. A slow-down is claimed only where the whole interval of the ratio lies beyond
the machine's noise floor and the tolerance, and only after a second look in cold processes: a gate that cries wolf is
switched off. The first look alone decides where it excludes a slow-down.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from runners.errors import CANDIDATE
from runners.job import Effort, JobResult, JobSpec, Speedup, Status

Evaluate = Callable[[JobSpec], JobResult]
# Endings for which neither of the two kernels is to blame.
BLAMELESS = frozenset({Status.INFRA_ERROR, Status.TOO_LARGE})


class Ruling(IntEnum):
    """List what a gate can say, by its exit code."""

    NOT_SLOWER = 0
    NO_VERDICT = 1
    SLOWER = 3
    WRONG = 4

    @property
    def in_words(self) -> str:
        """Return the ruling as a headline."""
        return {0: "not slower", 1: "no verdict", 3: "slower", 4: "wrong"}[self.value]


@dataclass(frozen=True)
class Decision:
    """Hold a ruling, its reason in words, and the results it rests on, the deciding one last."""

    ruling: Ruling
    reason: str
    looks: tuple[JobResult, ...]
    tolerance: float

    @property
    def deciding(self) -> JobResult:
        """Return the result that decided."""
        return self.looks[-1]


def decide(spec: JobSpec, tolerance: float, evaluate: Evaluate) -> Decision:
    """Evaluate the candidate against `spec.parent`, and once more where a slow-down is possible.

    `tolerance` is the slow-down that is accepted, as a share of the time (0.02 is 2 %).
    """
    first = evaluate(dataclasses.replace(spec, effort=Effort.FULL))
    if (failed := failure_of(first)) is not None:
        return Decision(*failed, (first,), tolerance)
    if not _possibly_slower(_ratio(first), tolerance):
        return Decision(Ruling.NOT_SLOWER, _reason(first, tolerance), (first,), tolerance)
    second = evaluate(dataclasses.replace(spec, effort=Effort.CONFIRM, job_id=uuid.uuid4().hex))
    looks = (first, second)
    if (failed := failure_of(second)) is not None:
        return Decision(*failed, looks, tolerance)
    # A slow-down that only one of two looks at fresh processes shows belongs to the machine, not to the kernel.
    slower = is_slower(_ratio(second), tolerance) and _ratio(first).median < 1
    ruling = Ruling.SLOWER if slower else Ruling.NOT_SLOWER
    return Decision(ruling, _reason(second, tolerance), looks, tolerance)


def failure_of(result: JobResult) -> tuple[Ruling, str] | None:
    """Return the ruling and reason where the two were not compared, or None where they were."""
    reason = "; ".join(result.reasons) or result.status.value
    if result.status in BLAMELESS:
        return Ruling.NO_VERDICT, reason
    sides = {failure.side for failure in result.failures}
    if result.status is not Status.CORRECT and (not sides or CANDIDATE in sides):
        return Ruling.WRONG, f"{result.status.value.replace('_', ' ')}: {reason}"
    if result.versus_parent is None:
        told = "; ".join(f"{one.side}, {one.stage}: {one.reason}" for one in result.failures) or reason
        return Ruling.NO_VERDICT, f"the two kernels could not be compared: {told}"
    return None


def is_slower(ratio: Speedup, tolerance: float) -> bool:
    """Return whether the whole interval lies beyond noise floor and tolerance on the slow side."""
    return ratio.high < _limit(ratio, tolerance)


def resolution(ratio: Speedup, tolerance: float) -> float:
    """Return the smallest slow-down that this comparison could have shown, as a share of the time."""
    return ratio.band * (1 + tolerance) * ratio.high / ratio.median - 1


def _limit(ratio: Speedup, tolerance: float) -> float:
    # Both must be overcome: what the machine does by itself, and what the project accepts.
    return 1 / (ratio.band * (1 + tolerance))


def _possibly_slower(ratio: Speedup, tolerance: float) -> bool:
    return ratio.low < _limit(ratio, tolerance)


def _ratio(result: JobResult) -> Speedup:
    if result.versus_parent is None:
        raise ValueError("the two kernels were not compared")
    return result.versus_parent


def _reason(result: JobResult, tolerance: float) -> str:
    ratio = _ratio(result)
    seen = f"{ratio.median:.3f}× the speed ({ratio.low:.3f} to {ratio.high:.3f}), noise floor {ratio.band:.3f}"
    finest = f"slow-downs under {resolution(ratio, tolerance):.1%} cannot be shown here"
    return f"{seen}, tolerance {tolerance:.1%}; {finest}"

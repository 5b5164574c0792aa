"""Compare a kernel with the one that it is to replace, and decide whether it may.

The two are timed in turns by the harness. One look decides only where it excludes a slow-down that matters. Everything
else takes further looks in cold processes, which are judged together: what a machine does to one comparison by itself
(its noise floor) differs from look to look, so the mean of k looks strays by 1/sqrt(k) of it. A gate that cries wolf is
switched off, and one that lets through what it cannot see is worth nothing: where the looks end without an answer, the
ruling is `undecided`, with an exit code of its own.
"""

from __future__ import annotations

import dataclasses
import math
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from statistics import fmean

from runners.errors import CANDIDATE
from runners.job import Effort, JobResult, JobSpec, Speedup, Status

Evaluate = Callable[[JobSpec], JobResult]
# Endings for which neither of the two kernels is to blame.
BLAMELESS = frozenset({Status.INFRA_ERROR, Status.TOO_LARGE})
MOST_LOOKS = 5
# The slow-down beyond the tolerance that must not pass unseen.
DETECT = 0.05
# Half the width of a 95 % interval, in standard deviations.
NORMAL = 1.96
LOOKS_LIMIT = 10
# The noise floor, in log, above which the floor is itself uncertain (`timing.noise.WIDE` is 1.03).
NOISY = 0.015


class Ruling(IntEnum):
    """List what a gate can say, by its exit code."""

    NOT_SLOWER = 0
    NO_VERDICT = 1
    SLOWER = 3
    WRONG = 4
    UNDECIDED = 5

    @property
    def in_words(self) -> str:
        """Return the ruling as a headline."""
        return {0: "not slower", 1: "no verdict", 3: "slower", 4: "wrong", 5: "undecided"}[self.value]


@dataclass(frozen=True)
class Rules:
    """Hold what a project accepts, as shares of the time (0.02 is 2 %).

    `tolerance` is the slow-down that is accepted, and `detect` the one beyond it that must be found or be told as
    undecided. `looks` is the most comparisons that are made.
    """

    tolerance: float = 0.0
    detect: float = DETECT
    looks: int = MOST_LOOKS


@dataclass(frozen=True)
class Pooled:
    """Hold several looks as one: the mean ratio of speeds in log, its 95 % half-width, and the noise that remains."""

    mean: float
    half: float
    noise: float

    @property
    def in_words(self) -> str:
        """Return the ratio with its interval."""
        median, low, high = (math.exp(one) for one in (self.mean, self.mean - self.half, self.mean + self.half))
        return f"{median:.3f}× the speed ({low:.3f} to {high:.3f}), noise floor {math.exp(self.noise):.3f}"


@dataclass(frozen=True)
class Decision:
    """Hold a ruling, its reason in words, and the results it rests on, the last one last."""

    ruling: Ruling
    reason: str
    looks: tuple[JobResult, ...]
    rules: Rules

    @property
    def deciding(self) -> JobResult:
        """Return the last result."""
        return self.looks[-1]


def decide(spec: JobSpec, rules: Rules, evaluate: Evaluate) -> Decision:
    """Evaluate the candidate against `spec.parent`, as often as it takes and the rules allow."""
    looks: list[JobResult] = []
    while True:
        effort = Effort.CONFIRM if looks else Effort.FULL
        looks.append(evaluate(dataclasses.replace(spec, effort=effort, job_id=uuid.uuid4().hex)))
        if (failed := failure_of(looks[-1])) is not None:
            return Decision(*failed, tuple(looks), rules)
        found = ruling_of([_ratio(look) for look in looks], rules)
        if found is not Ruling.UNDECIDED or len(looks) >= rules.looks:
            return Decision(found, _reason(looks, rules), tuple(looks), rules)


def ruling_of(ratios: Sequence[Speedup], rules: Rules) -> Ruling:
    """Return what the looks say: the first one in passing, the others together; `undecided` asks for another look."""
    accepted = math.log1p(rules.tolerance)
    judged = judged_looks(ratios)
    # Nothing beyond the noise was seen, and the noise hides nothing that matters.
    is_fine = judged.mean - judged.half > -(accepted + judged.noise)
    if is_fine and judged.mean - judged.half - judged.noise > -(accepted + math.log1p(rules.detect)):
        return Ruling.NOT_SLOWER
    is_slower = judged.mean + judged.half + judged.noise < -accepted
    return Ruling.SLOWER if is_slower and _is_borne_out(ratios, accepted) else Ruling.UNDECIDED


def _is_borne_out(ratios: Sequence[Speedup], accepted: float) -> bool:
    """Return whether further looks show what the first one did.

    One look never suffices, because it may be the one in many that strayed. A slow-down that the first look did not
    show belongs to the machine. Where the machine is noisy, its floor is itself uncertain, so three looks must agree.
    """
    needed = 3 if math.log(max(one.band for one in ratios)) > NOISY else 2
    return len(ratios) >= needed and all(math.log(one.high) < -accepted for one in ratios)


def judged_looks(ratios: Sequence[Speedup]) -> Pooled:
    """Return the looks that are judged, as one.

    The first one alone, else all but the first: further looks are made because the first one was low, so counting it
    with them would count a chance deviation twice.
    """
    return pooled(ratios[1:] or ratios)


def pooled(ratios: Sequence[Speedup]) -> Pooled:
    """Return the mean of the looks in log, with what is left of their half-widths and noise floors.

    Looks that differ by more than half-widths and floors allow are scaled up by Birge's ratio (1932), as the Particle
    Data Group does with measurements that contradict each other.
    """
    count = len(ratios)
    centres = [math.log(one.median) for one in ratios]
    halves = [max(math.log(one.high / one.median), math.log(one.median / one.low)) for one in ratios]
    noises = [math.log(one.band) for one in ratios]
    mean = fmean(centres)
    sigmas = [math.hypot(half, noise) / NORMAL for half, noise in zip(halves, noises, strict=True)]
    excess = [(centre - mean) / sigma for centre, sigma in zip(centres, sigmas, strict=True) if sigma > 0]
    scale = max(1.0, math.hypot(*excess) / math.sqrt(count - 1)) if count > 1 else 1.0
    return Pooled(mean, scale * math.hypot(*halves) / count, scale * math.hypot(*noises) / count)


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


def resolution(judged: Pooled, tolerance: float) -> float:
    """Return the smallest slow-down that these looks could have shown, as a share of the time."""
    return math.expm1(judged.half + judged.noise) * (1 + tolerance) + tolerance


def _ratio(result: JobResult) -> Speedup:
    if result.versus_parent is None:
        raise ValueError("the two kernels were not compared")
    return result.versus_parent


def _reason(looks: Sequence[JobResult], rules: Rules) -> str:
    judged = judged_looks([_ratio(look) for look in looks])
    finest = f"slow-downs under {resolution(judged, rules.tolerance):.1%} cannot be shown here"
    counted = "1 look" if len(looks) == 1 else f"{len(looks)} looks"
    return f"{judged.in_words} after {counted}, tolerance {rules.tolerance:.1%}; {finest}"

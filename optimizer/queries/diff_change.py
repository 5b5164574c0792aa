"""Compute what a change of the source did to the times of every shape and to the compiler's report.

Two kernels are compared through the baseline that was timed alongside each, so that hours or a busier machine between
them make no difference. Where the new kernel was timed alternately with the old one as its parent, all figures are
from that one evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

import numpy as np

from optimizer.models import Evaluation, Kernel, Measurement
from optimizer.queries.comparison import on_same_ground
from optimizer.queries.kernel_resources import LABELS as RESOURCES
from optimizer.queries.kernel_resources import changed_features, pairs_of, tidy
from optimizer.queries.own_builds import with_own_build
from runners.job import CaseResult, JobResult, KernelResources

# Used where a result has no noise floor: differences below one per cent mean nothing on the machines we know.
NARROWEST_BAND = 1.01
RESAMPLES = 400
LEAST_SAMPLES = 5
MOST_SAMPLES = 2_000


@dataclass(frozen=True)
class ShapeChange:
    """Hold one shape: medians in µs, and the new kernel's speedup with its 95 % interval."""

    name: str
    old_us: float | None
    new_us: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str = ""


@dataclass(frozen=True)
class ResourceChange:
    """Hold one figure of the resource report of one device kernel, before and after."""

    kernel: str
    label: str
    old: Any
    new: Any

    @property
    def difference(self) -> float | None:
        """Return new minus old where both are numbers."""
        if isinstance(self.old, int | float) and isinstance(self.new, int | float):
            return round(self.new - self.old, 3)
        return None


@dataclass(frozen=True)
class Change:
    """Hold everything that is shown beside the code.

    `overall` is None where the two are not comparable. `paired` means that they were timed alternately rather than
    compared through the baseline.
    """

    shapes: Sequence[ShapeChange]
    overall: ShapeChange | None
    resources: Sequence[ResourceChange]
    paired: bool = False
    why_not: str = ""


def change_between(old: Kernel, new: Kernel) -> Change:
    """Return the change between two kernels, by their first evaluations."""
    was, now = _evaluation(old), _evaluation(new)
    before, after = (one.as_readable_result() if one else None for one in (was, now))
    # Only for the figures: that two builds of this site are the same binary says nothing of what ran elsewhere.
    resources = _resources(with_own_build(before, old.pk), with_own_build(after, new.pk))
    if before is None or after is None or was is None or now is None:
        return Change([], None, resources, why_not="One of the two has not been measured.")
    if not on_same_ground([old.run, new.run]):
        return Change([], None, resources, why_not="Their problems or targets differ: their times do not compare.")
    if _same_binary(before, after):
        return Change([], None, resources, why_not="Both build to the same binary.")
    if _was_timed_in_turn(old, new, now, after):
        return Change(_shapes_in_turn(now, after), _overall_in_turn(now, after), resources, paired=True)
    return Change(_shapes(before, after), _overall(was, now, _band(before, after)), resources)


def settings_between(old: Kernel, new: Kernel) -> list[tuple[str, Any, Any]]:
    """Return (name, before, after) of the parameters and compiler flags that differ; None means the default."""
    names = dict.fromkeys([*old.tunables, *new.tunables])
    rows = [(name, old.tunables.get(name), new.tunables.get(name)) for name in names]
    rows.append(("flags", " ".join(old.flags) or None, " ".join(new.flags) or None))
    return [row for row in rows if row[1] != row[2]]


def _evaluation(kernel: Kernel) -> Evaluation | None:
    return getattr(kernel, "evaluation", None)


def _same_binary(before: JobResult, after: JobResult) -> bool:
    hashes = [result.build.artefact_hash if result.build else None for result in (before, after)]
    return hashes[0] is not None and hashes[0] == hashes[1]


def _shapes(before: JobResult, after: JobResult) -> list[ShapeChange]:
    """Return the shapes on which either was timed, in the order of the new one."""
    then, now = _timed(before), _timed(after)
    names = dict.fromkeys([*now, *then])
    return [_shape(name, then.get(name), now.get(name), _band(before, after)) for name in names]


def _timed(result: JobResult) -> Mapping[str, CaseResult]:
    return {case.name: case for case in result.cases if case.candidate_us}


def _shape(name: str, old: CaseResult | None, new: CaseResult | None, band: float) -> ShapeChange:
    old_us, new_us = (case.candidate_us if case else None for case in (old, new))
    if old is None or new is None or not (old.speedup and new.speedup):
        return ShapeChange(name, old_us, new_us)
    was = (old.speedup, old.speedup_low, old.speedup_high)
    now = (new.speedup, new.speedup_low, new.speedup_high)
    return _compared(name, old_us, new_us, was, now, band)


def _overall(was: Evaluation, now: Evaluation, band: float) -> ShapeChange | None:
    if not (was.speedup and now.speedup):
        return None
    before = (was.speedup, was.speedup_low, was.speedup_high)
    after = (now.speedup, now.speedup_low, now.speedup_high)
    return _compared("All shapes", was.time_us, now.time_us, before, after, band)


def _compared(
    name: str,
    old_us: float | None,
    new_us: float | None,
    was: tuple[float, float | None, float | None],
    now: tuple[float, float | None, float | None],
    band: float,
) -> ShapeChange:
    """Return the ratio of two independent speedups.

    The half widths of their intervals are added in quadrature on the log scale (first-order propagation of error;
    Bevington & Robinson 2003, section 3.2).
    """
    ratio = now[0] / was[0]
    if None in was or None in now:
        return ShapeChange(name, old_us, new_us, ratio)
    # The ratio is lowest when the new speedup is at its lower and the old one at its upper limit.
    down = math.hypot(_log(now[0], now[1]), _log(was[2], was[0]))
    up = math.hypot(_log(now[2], now[0]), _log(was[0], was[1]))
    low, high = ratio * math.exp(-down), ratio * math.exp(up)
    return ShapeChange(name, old_us, new_us, ratio, low, high, _verdict(low, high, band))


def _log(above: float | None, below: float | None) -> float:
    return math.log(above / below) if above and below else 0.0


def _verdict(low: float, high: float, band: float) -> str:
    if low > band:
        return "faster"
    return "slower" if high < 1 / band else "same"


def _band(before: JobResult, after: JobResult) -> float:
    """Return the noise floor that a difference must exceed: the product of both comparisons' bands, as both may err."""
    bands = [max(NARROWEST_BAND, result.speedup.band if result.speedup else 0.0) for result in (before, after)]
    return math.prod(bands)


def _was_timed_in_turn(old: Kernel, new: Kernel, now: Evaluation, after: JobResult) -> bool:
    """Return True where the harness timed the new kernel alternately with the old one."""
    in_turn = bool(now.parent_speedup) and any(case.parent_us for case in after.cases)
    return in_turn and new.parent_links.filter(parent=old, rank=0).exists()


def _overall_in_turn(now: Evaluation, after: JobResult) -> ShapeChange:
    """Return the harness's own comparison."""
    befores = [case.parent_us for case in after.cases if case.parent_us]
    return ShapeChange(
        "All shapes",
        geometric_mean(befores),
        now.time_us,
        now.parent_speedup,
        now.parent_speedup_low,
        now.parent_speedup_high,
        now.parent_verdict,
    )


def _shapes_in_turn(now: Evaluation, after: JobResult) -> list[ShapeChange]:
    """Return every shape from the samples of one evaluation, old and new."""
    rows = Measurement.objects.filter(evaluation=now, subject__in=("candidate", "parent"))
    samples = {(case, subject): times for case, subject, times in rows.values_list("case", "subject", "samples_us")}
    band = max(NARROWEST_BAND, after.versus_parent.band if after.versus_parent else 0.0)
    return [
        _in_turn(case, samples.get((case.name, "parent"), []), samples.get((case.name, "candidate"), []), band)
        for case in _timed(after).values()
    ]


def _in_turn(case: CaseResult, old: Sequence[float], new: Sequence[float], band: float) -> ShapeChange:
    """Return the ratio of medians with its percentile bootstrap interval (Davison & Hinkley 1997, section 5.3)."""
    if not (case.parent_us and case.candidate_us):
        return ShapeChange(case.name, case.parent_us, case.candidate_us)
    ratio = case.parent_us / case.candidate_us
    # A bootstrap of very few samples would give an interval that is far too narrow.
    if len(old) < LEAST_SAMPLES or len(new) < LEAST_SAMPLES:
        return ShapeChange(case.name, case.parent_us, case.candidate_us, ratio)
    # A fixed seed: the page must show the same interval at every visit.
    rng = np.random.default_rng(0)
    drawn = [
        np.median(rng.choice(np.asarray(times[:MOST_SAMPLES]), (RESAMPLES, min(len(times), MOST_SAMPLES))), axis=1)
        for times in (old, new)
    ]
    low, high = (float(bound) for bound in np.quantile(drawn[0] / drawn[1], (0.025, 0.975)))
    # A percentile interval of few samples may miss the point estimate, which would look like an error.
    low, high = min(low, ratio), max(high, ratio)
    return ShapeChange(case.name, case.parent_us, case.candidate_us, ratio, low, high, _verdict(low, high, band))


def _resources(before: JobResult | None, after: JobResult | None) -> list[ResourceChange]:
    """Compare the figures of device kernels that are on both sides or on one."""
    old, new = (one.build if one else None for one in (before, after))
    pairs = pairs_of(new, old)
    known = {id(was) for _, was in pairs}
    gone = [one for one in (old.kernels if old else []) if id(one) not in known]
    rows = [row for now, was in pairs for row in _rows(now.name, was, now)]
    rows += [row for was in gone for row in _rows(was.name, was, None)]
    return [row for row in rows if row.old is not None or row.new is not None]


def _rows(name: str, old: KernelResources | None, new: KernelResources | None) -> list[ResourceChange]:
    rows = [
        ResourceChange(name, text, getattr(old, key, None), getattr(new, key, None))
        for key, text in RESOURCES.items()
    ]
    extras = dict.fromkeys([*(old.extra if old else ()), *(new.extra if new else ())])
    for key in extras:
        was, now = (one.extra.get(key) if one else None for one in (old, new))
        rows += _extra(name, key.replace("_", " "), was, now)
    return rows + _changed_features(name, old, new)


def _changed_features(name: str, old: KernelResources | None, new: KernelResources | None) -> list[ResourceChange]:
    """Return the static features that differ; there are dozens, and what stayed says nothing about the change."""
    was, now = (one.features if one else {} for one in (old, new))
    return [
        ResourceChange(name, label, tidy(was[key]), tidy(now[key]))
        for key, label in changed_features(was, now).items()
    ]


def _extra(name: str, label: str, was: Any, now: Any) -> list[ResourceChange]:
    """Return a figure, or each figure of a small table."""
    if not isinstance(was, dict) and not isinstance(now, dict):
        return [ResourceChange(name, label, was, now)]
    old, new = (side if isinstance(side, dict) else {} for side in (was, now))
    return [
        ResourceChange(name, f"{label}: {key}", old.get(key), new.get(key)) for key in dict.fromkeys([*new, *old])
    ]

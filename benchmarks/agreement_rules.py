"""Decide whether two evaluators agree on a kernel, and by which measured reason they do not.

`explained` compares our speedup by call time with KernelBench's. Where they differ by more than TOLERANCE, each rule
looks for its reason in the figures of both, and names the figures that show it. A difference that no rule reproduces
within the same TOLERANCE stays unexplained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from benchmarks.kernelbench_evaluator import Evaluated

TOLERANCE = 0.03
MOST_NOISE = 0.1
"""A figure that is less certain than this explains nothing; it has to be measured again."""
HOST_BOUND = 1.5
"""A call that takes this many times its device time is paced by the host."""
MOST_TRIAL_COST_US = 30.0
"""Most that an isolated trial adds to a call: two events, a launch on an idle device, and writing back a cache of 50 MB
that a fill has just left dirty (17 µs at 3 TB/s)."""
AGREES, NOT_COMPARED, UNEXPLAINED = "agrees", "not_compared", "unexplained"


@dataclass(frozen=True)
class Ours:
    """Hold our figures for one kernel. Speedups are `[median, low, high]`; times in µs by side, `candidate` and
    `reference`."""

    status: str
    seconds: float
    reasons: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    device: list[float] | None = None
    call: list[float] | None = None
    device_us: dict[str, float] = field(default_factory=dict)
    call_us: dict[str, float] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """Hold the name of a rule and the figures that it rests on."""

    rule: str
    words: str = ""

    @property
    def is_explained(self) -> bool:
        """Say whether nothing is left to be found out."""
        return self.rule not in (NOT_COMPARED, UNEXPLAINED)


def explained(ours: Ours, runs: list[Evaluated]) -> Verdict:
    """Return whether our call time agrees with KernelBench's runs, or the first rule that says why it does not."""
    failure = _failure(ours, runs)
    if failure or ours.call is None:
        return Verdict(NOT_COMPARED, failure or "no call time")
    if near(ours.call[0], theirs(runs)):
        return Verdict(AGREES, f"within {TOLERANCE:.0%}")
    return next(_reasons(ours, ours.call, runs), Verdict(UNEXPLAINED, _loop_words(ours.call[0], runs)))


def near(one: float, other: float) -> bool:
    """Say whether two speedups differ by at most TOLERANCE."""
    return abs(one / other - 1) <= TOLERANCE


def theirs(runs: list[Evaluated]) -> float:
    """Return KernelBench's speedup, the geometric mean of its runs'."""
    return math.exp(fmean(math.log(speedup(run)) for run in runs))


def speedup(run: Evaluated, reference: str = "reference") -> float:
    """Return a run's speedup as KernelBench computes it: mean time of the reference by mean time of the candidate."""
    return fmean(run.figures[reference]) / fmean(run.figures["candidate"])


def scatter(runs: list[Evaluated]) -> float:
    """Return how far KernelBench's runs lie apart, as a share."""
    found = [speedup(run) for run in runs]
    return max(found) / min(found) - 1


def loop_speedup(runs: list[Evaluated], mode: str = "no_grad") -> float:
    """Return the speedup by steady loops in KernelBench's own processes."""
    loops = [run.figures["loops"][mode] for run in runs]
    return math.exp(fmean(math.log(median(loop["reference"]) / median(loop["candidate"])) for loop in loops))


def _failure(ours: Ours, runs: list[Evaluated]) -> str:
    if ours.status != "correct":
        return f"ours: {ours.status}: {'; '.join(ours.reasons)[:200]}"
    failures = [run.error for run in runs if run.error]
    return f"KernelBench: {failures[0][-300:]}" if failures else "" if runs else "KernelBench has not run"


def _reasons(ours: Ours, call: list[float], runs: list[Evaluated]) -> Iterator[Verdict]:
    yield from _their_noise(call, runs)
    yield from _our_noise(call, theirs(runs))
    if near(call[0], loop_speedup(runs)):  # else even the same way of timing gives another figure
        yield from _ways_of_timing(ours, call[0], runs)


def _their_noise(call: list[float], runs: list[Evaluated]) -> Iterator[Verdict]:
    middle = math.exp(
        fmean(math.log(median(run.figures["reference"]) / median(run.figures["candidate"])) for run in runs)
    )
    if near(call[0], middle):
        yield Verdict("their_outliers", f"medians of their trials give {middle:.3f}, they publish means")
    if TOLERANCE < scatter(runs) <= MOST_NOISE and any(near(call[0], speedup(run)) for run in runs):
        yield Verdict("their_scatter", f"their own runs lie {scatter(runs):.1%} apart, and one agrees")
    first = [speedup(run, "reference_first") for run in runs]
    if near(call[0], math.exp(fmean(map(math.log, first)))):
        both = " and ".join(f"{one:.3f}" for one in first)
        yield Verdict("their_order", f"with the reference timed first, without autograd, they read {both}")


def _our_noise(call: list[float], other: float) -> Iterator[Verdict]:
    _, low, high = call
    if TOLERANCE < high / low - 1 <= MOST_NOISE and low <= other <= high:
        yield Verdict("our_interval", f"our interval of {high / low - 1:.1%} holds their figure")


def _ways_of_timing(ours: Ours, call: float, runs: list[Evaluated]) -> Iterator[Verdict]:
    """Yield the reasons of a difference that goes away when KernelBench's process times a steady loop too."""
    looped = f"a steady loop in their process reads {loop_speedup(runs):.3f}"
    found, pace = theirs(runs), max(ours.call_us[side] / ours.device_us[side] for side in ours.call_us)
    host = f"; a call takes {pace:.1f} times its device time" if pace > HOST_BOUND else ""
    if ours.device and near(ours.device[0], found):
        yield Verdict(
            "device_time", f"{looped}; their trials agree with our device time {ours.device[0]:.3f}{host}"
        )
    with_grad = loop_speedup(runs, "grad")
    if near(with_grad, found):
        yield Verdict("autograd", f"{looped}, with autograd on, as in their trials, {with_grad:.3f}{host}")
    cost_us = trial_cost_us(ours, runs)
    if cost_us is not None:
        yield Verdict("trial_cost", f"{looped}; each of their trials costs {cost_us:.1f} µs more than the call")
    if host and _is_between(ours, runs):
        yield Verdict("host_bound", f"{looped}{host}; their trials lie between the two")


def trial_cost_us(ours: Ours, runs: list[Evaluated]) -> float | None:
    """Return what an isolated trial adds to both sides alike, if that and our device times reproduce their speedup."""
    trials = {side: _trial_us(runs, side) for side in ours.device_us}
    extra = [trials[side] - ours.device_us[side] for side in trials]
    if not extra or not all(0 <= one <= MOST_TRIAL_COST_US for one in extra):
        return None
    cost_us = fmean(extra)
    rebuilt = (ours.device_us["reference"] + cost_us) / (ours.device_us["candidate"] + cost_us)
    return cost_us if near(rebuilt, theirs(runs)) else None


def _is_between(ours: Ours, runs: list[Evaluated]) -> bool:
    """Say whether their trials take at least the device time and at most a whole call, on both sides."""
    return all(
        ours.device_us[side] * (1 - TOLERANCE)
        <= _trial_us(runs, side)
        <= ours.call_us[side] * (1 + TOLERANCE) + MOST_TRIAL_COST_US
        for side in ours.device_us
    )


def _trial_us(runs: list[Evaluated], side: str) -> float:
    return 1e3 * fmean(median(run.figures[side]) for run in runs)


def _loop_words(call: float, runs: list[Evaluated]) -> str:
    looped = loop_speedup(runs)
    does = "agrees" if near(call, looped) else "disagrees too"
    return f"a steady loop in their process reads {looped:.3f}, which {does}"

"""Compare a correct candidate with its opponents on a device that is held alone: time, judge, conclude, profile."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from runners.backends import Artefact
from runners.errors import BASELINE, CANDIDATE, PARENT, CandidateFailure
from runners.harness.devices.device import Device
from runners.harness.devices.gpu_state import watched
from runners.harness.devices.roofline import ensure_ceilings
from runners.harness.findings import Findings
from runners.harness.oracle.pool import pool
from runners.harness.processes.participant import CandidateProcess
from runners.harness.profiling import launches
from runners.harness.profiling.request import ProfilingRequest, profiled
from runners.harness.stages import Stages
from runners.harness.timing.noise import UNMEASURED, known_floor, measured_floor, resolved
from runners.harness.timing.plan import CONFIRM, FULL, QUICK, Plan
from runners.harness.timing.sessions import Bench, Sides, Timings, overall_us
from runners.harness.verdict import library_calls
from runners.harness.verdict.plausibility import claims_far_more, clocks_log, failed_checks
from runners.harness.verdict.report import speedup_of
from runners.job import Effort, Flag, JobSpec, NoiseFloor, Objective, Speedup, Status, Verdict
from runners.targets import Target

PLANS = {Effort.CHECK: QUICK, Effort.QUICK: QUICK, Effort.FULL: FULL, Effort.CONFIRM: CONFIRM}
# Far enough that no noise of a quick timing makes up for it.
ABANDON_FACTOR = 3.0
# A difference below this factor counts only if more sessions show it too. Processes of the same program differ by up to
# 5 % for as long as they live (torch.topk on an H100; the cause is not known), and once in thirty times one side has
# the slower ones in all of three sessions.
SMALL_FACTOR = 1.1
# A difference also needs more sessions if its interval (in log) is wider than this share of the difference. Where units
# scatter by 15 to 30 %, as they do when a loaded host paces the calls, three sessions of one or two units call 1.7 to
# 6.8 % of programs different from themselves. With this rule it is 0.4 to 1.7 % (simulated, 1,500 trials each).
WIDE_SHARE = 0.5
# Speedups this large are more often mistakes than discoveries, so a person should look.
REVIEW_FACTOR = 10.0


class Comparison:
    """Time one job's sides by its effort, and note speedups and verdict in the findings."""

    def __init__(
        self,
        spec: JobSpec,
        target: Target,
        stages: Stages,
        found: Findings,
        rng: random.Random,
    ) -> None:
        self._spec, self._target = spec, target
        self._stages, self._found, self._rng = stages, found, rng

    @property
    def may_abandon(self) -> bool:
        """Return whether the kernel may turn out too slow for full timing."""
        return bool(self._spec.effort is not Effort.QUICK and self._spec.best_us)

    @property
    def first_plan(self) -> Plan:
        """Return what is measured first: quick timing if the kernel may turn out too slow for more."""
        return self._plan(Effort.QUICK if self.may_abandon else self._spec.effort)

    def first_sides(self, sides: Sides) -> Sides:
        """Return the sides that are measured first: quick timing leaves a parent out."""
        return _against_baseline(sides) if self.may_abandon else sides

    def time(self, bench: Bench, device: Device, sides: Sides) -> None:
        """Time the sides on a device that nobody else uses, and conclude.

        Raises CandidateFailure if the times are not plausible.
        """
        self._found.status = Status.CORRECT
        if not bench.cases or not sides[CANDIDATE].timed or BASELINE not in sides:
            self._found.flags.append(Flag.NOT_TIMED if bench.cases else Flag.NO_BENCHMARK_CASE)
            return
        with device.exclusively(self._stages.cancel) as waited_s, pool(device).warm_workers.quiet():
            self._stages.forgive(waited_s)
            ensure_ceilings(self._target, device)
            while BASELINE in sides and self._found.timings is None:
                with self._found.opponents(self._stages, sides):
                    self._time_alone(bench, device, sides)
                    return
        self._found.flags.append(Flag.NOT_TIMED)

    def _time_alone(self, bench: Bench, device: Device, sides: Sides) -> None:
        """Time on a device that is held alone, with quick timing first if the kernel may turn out too slow for more.

        Raises CandidateFailure with the side that failed.
        """
        if self.may_abandon and self._abandoned(bench, sides):
            return
        plan = self._plan(self._spec.effort)
        name = {Effort.QUICK: "quick timing", Effort.CONFIRM: "confirmation"}.get(self._spec.effort, "timing")
        self._found.floor = self._noise_floor(measure=self._spec.effort is not Effort.QUICK)
        measure = partial(self._measured, bench, plan, sides, name)
        with self._stages.stage(name) as logs:
            timings, against = self._judged(bench, measure(), measure)
            if against or self._is_unconfirmed(timings):
                logs.append(clocks_log(timings))
        self._conclude(timings, against)
        self._profile_slowest(bench, device, sides[CANDIDATE], timings)

    def _noise_floor(self, *, measure: bool) -> NoiseFloor:
        if (known := known_floor(self._target)) is not None:
            return known
        if not measure:
            return UNMEASURED
        with self._stages.stage("noise floor"):
            started = time.monotonic()
            floor = measured_floor(self._target)
            # The noise floor belongs to the machine, so its measurement does not count against this job's limit.
            self._stages.forgive(time.monotonic() - started)
        return floor

    def _abandoned(self, bench: Bench, sides: Sides) -> bool:
        name = "quick timing"
        measure = partial(self._measured, bench, self._plan(Effort.QUICK), _against_baseline(sides), name)
        self._found.floor = self._noise_floor(measure=False)
        with self._stages.stage(name):
            timings = measure()
            if not self._far_behind(timings):
                return False
            timings, against = self._judged(bench, timings, measure)
        self._found.flags.append(Flag.ABANDONED_SLOW)
        self._conclude(timings, against)
        return True

    def _far_behind(self, timings: Timings) -> bool:
        slow = [overall_us(timings)[case] > ABANDON_FACTOR * best for case, best in self._known_best(timings)]
        return bool(slow) and all(slow)

    def _plan(self, effort: Effort) -> Plan:
        plan = PLANS[effort]
        return plan if self._target.family == "cpu" else plan.on_gpu()

    def _known_best(self, timings: Timings) -> list[tuple[str, float]]:
        return [(case, self._spec.best_us[case]) for case in timings.sessions if case in self._spec.best_us]

    def _judged(self, bench: Bench, timings: Timings, measure: Callable[[], Timings]) -> tuple[Timings, list[str]]:
        """Return the timings that count, and what speaks against them.

        Implausible timings are repeated once in fresh processes: load can make two clocks differ, but hardly twice,
        and a cheat differs again.
        """
        if not (against := self._failed_checks(bench, timings)):
            return timings, against
        self._found.flags.append(Flag.MEASURED_AGAIN)
        self._found.speedups.clear()
        timings = measure()
        return timings, self._failed_checks(bench, timings)

    def _failed_checks(self, bench: Bench, timings: Timings) -> list[str]:
        """Compute the speedups, and return what speaks against them."""
        floor = self._resolved_floor(timings)
        self._found.speedups.update(self._speedups(timings))
        if timings.has_call_time:
            by_call = speedup_of(timings, BASELINE, self._spec.baseline.value, floor, self._rng, Objective.CALL)
            self._found.call_speedup = _shown(timings, by_call)
        return failed_checks(
            bench.problem, bench.cases, self._target, timings, self._found.speedups[BASELINE], self._rng
        )

    def _resolved_floor(self, timings: Timings) -> float:
        return resolved(self._found.floor.ratio if self._found.floor else 1.0, timings, self._target)

    def _speedups(self, timings: Timings) -> dict[str, Speedup]:
        """Return the speedup against each opponent that all sessions had."""
        floor, found = self._resolved_floor(timings), {}
        for opponent, label in ((BASELINE, self._spec.baseline.value), (PARENT, "parent")):
            if all(opponent in session.sides for many in timings.sessions.values() for session in many):
                found[opponent] = _shown(timings, speedup_of(timings, opponent, label, floor, self._rng))
        return found

    def _measured(self, bench: Bench, plan: Plan, sides: Sides, name: str) -> Timings:
        def look(sides: list[CandidateProcess]) -> None:
            self._found.seen["gpu_at_end"] = watched(self._target)
            if bench.oracle.on_gpu and plan.sessions > QUICK.sessions:
                self._found.profile["launch"] = launches.launches(bench, sides)

        progress, started = partial(self._stages.progress, name), time.monotonic()
        timings = self._with_parent(bench.measure(plan, sides, progress, look))
        more_s = (time.monotonic() - started) * plan.more_sessions / plan.sessions
        if (
            plan.more_sessions
            and any(map(_is_doubtful_claim, self._speedups(timings).values()))
            and self._stages.has_time_for(more_s)
        ):
            timings = self._with_parent(bench.measure(plan.continued(), sides, progress, timings=timings))
        return timings

    def _with_parent(self, timings: Timings) -> Timings:
        """Return the timings, with the baseline's for the parent if both have the same source."""
        if self._found.parent_is_baseline:
            timings.share(BASELINE, PARENT)
        return timings

    def _profile_slowest(self, bench: Bench, device: Device, artefact: Artefact, timings: Timings) -> None:
        """Profile the slowest case, if the job asks for it.

        The slow tools are used only if no faster kernel of that case is known, since other kernels are to be built
        upon it.
        """
        if not self._spec.profile:
            return
        with self._stages.stage("profile"):
            bench.make_room()
            times_us = overall_us(timings)
            slowest = max(bench.cases, key=lambda case: times_us[case.name])
            size = bench.arena_bytes(QUICK)
            call_us = times_us[slowest.name]
            closely = call_us <= self._spec.best_us.get(slowest.name, call_us)
            request = ProfilingRequest(bench, device, self._target, artefact, slowest, size, call_us, closely)
            found = self._found.profile["kernels"] = profiled(request)
            if bench.oracle.on_gpu and found["top"]:
                names = [kernel["name"] for kernel in found["top"]]
                self._found.flags += library_calls.seen(bench.problem, names, self._found.flags)

    def _is_unconfirmed(self, timings: Timings) -> bool:
        """Return whether the referee's clock does not confirm the kernel's times.

        Either the kernel claims to beat the baseline and that clock did not show it, or a claim is far beyond what that
        clock saw.
        """
        claimed = self._found.speedups[BASELINE]
        if claimed.low > claimed.band and claimed.verdict is not Verdict.FASTER:
            return True
        return any(claims_far_more(timings, name, claim, self._rng) for name, claim in self._found.speedups.items())

    def _conclude(self, timings: Timings, against: list[str]) -> None:
        self._found.timings = timings
        if timings.opponent_errors(BASELINE):
            self._found.flags.append(Flag.BASELINE_DISAGREES)
        if self._is_unconfirmed(timings):
            self._found.flags.append(Flag.UNCONFIRMED)
        if self._found.speedups[BASELINE].median > REVIEW_FACTOR:
            self._found.flags.append(Flag.NEEDS_REVIEW)
        self._found.flags += sorted({reason for case in timings.sessions for reason in timings.waits(case)})
        if timings.overwrites:
            self._found.flags.append(Flag.OVERWRITES_OUTPUT)
        if against:
            raise CandidateFailure(Status.SUSPECT, "; ".join(against))


def _shown(timings: Timings, claim: Speedup) -> Speedup:
    """Return a claim, `same` if it is small and of a single session, which shows nothing of how processes differ."""
    if timings.session_count > 1 or not _is_small_claim(claim):
        return claim
    return replace(claim, verdict=Verdict.SAME)


def _is_small_claim(claim: Speedup) -> bool:
    """Return whether the candidate would be called different by a small factor."""
    return claim.verdict is not Verdict.SAME and 1 / SMALL_FACTOR < claim.median < SMALL_FACTOR


def _is_doubtful_claim(claim: Speedup) -> bool:
    """Return whether the candidate would be called different, but by little or with a wide interval."""
    width = math.log(claim.high / claim.low) if claim.low > 0 else math.inf
    is_wide = claim.verdict is not Verdict.SAME and width > WIDE_SHARE * abs(math.log(claim.median))
    return is_wide or _is_small_claim(claim)


def _against_baseline(sides: Sides) -> Sides:
    return {name: artefact for name, artefact in sides.items() if name != PARENT}

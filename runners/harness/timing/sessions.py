"""Run timing sessions: fresh processes for each side, all benchmark cases, and the statistics of all sessions
together."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean, median, mode

from runners.backends.base import Artefact
from runners.errors import BASELINE, CANDIDATE, PARENT, Cancelled, InfraFailure
from runners.harness.devices.capacity import limits_for
from runners.harness.devices.neighbours import Neighbours
from runners.harness.memory import staging
from runners.harness.memory.arena import Arena
from runners.harness.memory.contents import Content, Setups
from runners.harness.oracle.client import OracleClient
from runners.harness.processes.participant import CandidateProcess, thread_count
from runners.harness.processes.warm_workers import WarmWorkers
from runners.harness.timing.case_timer import CaseTimer
from runners.harness.timing.first_calls import make_first_calls
from runners.harness.timing.measurements import CaseSession
from runners.harness.timing.plan import Plan
from runners.harness.timing.statistics import (
    Interval,
    clocks_agree,
    median_interval,
    scatter_us,
    speedup,
    unaccounted_us,
)
from runners.job import Limits, Objective, ProblemBundle
from runners.problems.base import Case, Problem

# Sessions whose processes have more memory in their arenas start one after the other and end at once.
AT_ONCE_BYTES = 1 << 30
# The same for what a call takes beyond the arena.
AT_ONCE_CALL_BYTES = 2 << 30
# Where no process may stand ready, sides whose calls take more than this give it back before another side computes.
FRUGAL_CALL_BYTES = 256 << 20
# Arenas and calls of all sides that live at once, three in each of three sessions, may take this share of a device's
# memory.
MOST_SIDES, AT_ONCE_SHARE = 9, 1 / 3
# On a CPU an arena takes memory as soon as it is mapped (see `runners.candidate.mapping`).
AT_ONCE_ON_CPU_BYTES = 128 << 20
MOST_SLACK_BYTES = 256 << 20
# On a GPU the sides of a session share an arena of at least this size: where memory lies physically changes the time of
# a call by up to a percent, so that both compute in the same place.
SHARED_BYTES = 64 << 20


# What is compared, by side, the candidate first.
Sides = dict[str, Artefact]


@dataclass
class Timings:
    """Hold the sessions by case name, in the order of the problem's cases. `objective` is what the job asks to
    compare."""

    sessions: dict[str, list[CaseSession]] = field(default_factory=dict)
    objective: Objective = Objective.DEVICE

    @property
    def session_count(self) -> int:
        """Return the number of sessions that all cases had."""
        return min(map(len, self.sessions.values()), default=0)

    @property
    def has_call_time(self) -> bool:
        """Return whether call time was measured apart from device time, as on a GPU."""
        many = next(iter(self.sessions.values()), [])
        return bool(many) and bool(many[0].sides[CANDIDATE].call.samples_us)

    def basis(self, case: str, opponent: str = BASELINE) -> Objective:
        """Return the time on which a case's verdict rests.

        It is call time if the job asks for it, or if some side's device time could not be separated from the host's.
        A parent is compared by device time if its own and the candidate's could be, whatever the baseline does: the
        loops of two kernels that are far faster than their baseline are paced by the host, and say little.
        """
        if not self.has_call_time:
            return Objective.DEVICE
        many = self.sessions[case]
        held = [one.holds(CANDIDATE, PARENT) if opponent == PARENT else one.held for one in many]
        return self.objective if all(held) else Objective.CALL

    def waits(self, case: str) -> list[str]:
        """Return why the device could not be held in a case (`synchronises` or `launch_bound`), or nothing if it could.

        The candidate's sessions count before those of its opponents.
        """
        mine = [s.sides[CANDIDATE].waits for s in self.sessions[case] if s.sides[CANDIDATE].waits]
        others = [side.waits for s in self.sessions[case] for side in s.sides.values() if side.waits]
        return [mode(mine or others)] if others else []

    @property
    def overwrites(self) -> bool:
        """Return whether the candidate's calls return the same memory each time, as its process claims."""
        return any(session.sides[CANDIDATE].overwrites for many in self.sessions.values() for session in many)

    def samples(self, case: str, side: str, basis: Objective = Objective.DEVICE) -> list[float]:
        """Return all samples of one side in µs."""
        return [sample for session in self.sessions[case] for sample in session.sides[side].of(basis).samples_us]

    def time(self, case: str, side: str, rng: random.Random, basis: Objective = Objective.DEVICE) -> Interval:
        """Return the median time of one side in µs with its interval, from the blocks' medians.

        A side that could not be held has device times in the first session only.
        """
        blocks = [[median(unit) for unit in s.sides[side].of(basis).blocks] for s in self.sessions[case]]
        return median_interval([session for session in blocks if session], rng)

    def case_speedup(
        self, case: str, opponent: str, rng: random.Random, basis: Objective | None = None
    ) -> Interval:
        """Return the speedup on one case, by its own basis unless another is given."""
        return speedup([self._units(case, opponent, basis)], rng)

    def speedup(self, opponent: str, rng: random.Random, basis: Objective | None = None) -> Interval:
        """Return the geometric mean of the speedups over all cases, each by its own basis unless one is given."""
        return speedup([self._units(case, opponent, basis) for case in self.sessions], rng)

    def clocks_agree(self, case: str, *, strictly: bool) -> bool:
        """Return whether in most sessions the referee's clock agrees with the candidate's.

        If not `strictly`, the effect of load on the baseline's own requests is tolerated: nobody is then accused of
        it, but nothing is shown either.
        """
        basis = self.basis(case)
        pairs = [
            (s.sides[CANDIDATE].of(basis).requests, s.sides[BASELINE].of(basis).requests)
            for s in self.sessions[case]
        ]
        agreed = [
            clocks_agree(ours, trusted, slack_us=0.0 if strictly else scatter_us(trusted))
            for ours, trusted in pairs
        ]
        # A majority, because load may disturb one session.
        return sum(agreed) * 2 > len(agreed)

    def busy_beyond_events_us(self, case: str, opponent: str) -> float:
        """Return how much longer the candidate keeps the device busy after its last event than the opponent does.

        The figure is in µs per call, 0 if nothing was held. It shows work on a stream that the events do not see.
        """
        sides = [session.sides for session in self.sessions[case]]
        if not all(s[CANDIDATE].busy_us and s[opponent].busy_us for s in sides):
            return 0.0
        return median([median(s[CANDIDATE].busy_us) - median(s[opponent].busy_us) for s in sides])

    def is_below(self, speedup: float, rng: random.Random) -> bool:
        """Return whether the candidate is surely below that speedup over every other side."""
        others = [name for name in next(iter(self.sessions.values()))[0].sides if name != CANDIDATE]
        return bool(others) and all(self.speedup(name, rng).high < speedup for name in others)

    def beside_a_call_us(self, case: str, side: str) -> float:
        """Return the time in µs per call that a side's requests take by the referee's clock and not by their own."""
        many = [session.sides[side].of(self.basis(case)).requests for session in self.sessions[case]]
        return median([unaccounted_us(requests) / fmean(r.calls for r in requests) for requests in many])

    def referee_speedup(self, opponent: str, rng: random.Random, case: str | None = None) -> Interval:
        """Return the speedup on one case, or over all, by the referee's clock alone."""
        names = list(self.sessions) if case is None else [case]
        bases = {name: self.basis(name, opponent) for name in names}
        units = [[s.referee_ratios(opponent, bases[name]) for s in self.sessions[name]] for name in names]
        return speedup(units, rng)

    def overstates(self, case: str, rng: random.Random) -> bool:
        """Return whether the candidate claims more than the referee's clock saw, by both signs.

        The signs are unaccounted time in the requests, and the paired ratios of whole requests.
        """
        if self.clocks_agree(case, strictly=False):
            return False
        claimed = self.case_speedup(case, BASELINE, rng)
        return claimed.median > self.referee_speedup(BASELINE, rng, case).high

    def share(self, side: str, name: str) -> None:
        """Count the times of one side for another side with the same source as well."""
        for many in self.sessions.values():
            for session in many:
                session.sides[name] = session.sides[side]

    def opponent_errors(self, opponent: str) -> list[str]:
        """Return what was wrong with the opponent's outputs, by case."""
        found = [(s.case.name, s.opponent_errors.get(opponent)) for many in self.sessions.values() for s in many]
        return [f"{name}: {error}" for name, error in found if error]

    def _units(self, case: str, opponent: str, basis: Objective | None) -> list[list[float]]:
        chosen = basis or self.basis(case, opponent)
        return [session.unit_ratios(opponent, chosen) for session in self.sessions[case]]


@dataclass
class Bench:
    """Hold everything needed to start the sides of a session.

    With `at_once`, modules may make their first calls, in which they compile, at the same time.
    """

    problem: Problem
    bundle: ProblemBundle
    oracle: OracleClient
    cases: list[Case]
    setups: Setups
    limits: Limits
    rng: random.Random
    cancel: Callable[[], bool] | None
    warm_workers: WarmWorkers | None = None
    at_once: bool = False
    objective: Objective = Objective.DEVICE
    neighbours: Neighbours = field(default_factory=Neighbours)
    # The memory of the device that computes, 0 where it is not known.
    device_bytes: int = 0
    _checked: CandidateProcess | None = None
    # What a call took of the device's memory beyond its arena, as the checked candidate claims.
    _call_bytes: int = 0
    _waiting: list[list[CandidateProcess]] = field(default_factory=list)
    _dismissed: list[CandidateProcess] = field(default_factory=list)
    # Large sides that end beside the start of the next ones.
    _ending: threading.Thread | None = None

    def for_checks(
        self, plan: Plan, artefact: Artefact, prepare: Callable[[], int]
    ) -> tuple[CandidateProcess, bool]:
        """Return a fresh process for the checks, and whether it may measure in the first session of that plan.

        `prepare` returns the least size of its arena. On a GPU, where each process takes a tenth of a second to open
        the device, the process stays unless its arena would be large.
        """
        timed_bytes = self.arena_bytes(plan) if self.oracle.on_gpu and self.cases else 0
        least_bytes = prepare()
        size = max(least_bytes, timed_bytes)
        stays = bool(timed_bytes) and not self._takes_much(size)
        return self.candidate(CANDIDATE, artefact, size if stays else least_bytes), stays

    def keep(self, checked: CandidateProcess) -> None:
        """Keep a candidate that passed the checks for the first session, unless its calls take much memory.

        What it gives back here says how much: attention that stores its weights takes 18 GiB for inputs of 16 MiB, and
        six such processes would fill an H100.
        """
        self._call_bytes = checked.release() if self.oracle.on_gpu else 0
        if self._is_frugal(checked.arena.size_bytes):
            self.dismiss([checked])
        else:
            self._checked = checked

    def start_ahead(self, plan: Plan, sides: Sides, others: Sequence[Bench] = ()) -> None:
        """Start the sides of all sessions of a plan, for `measure` to take. Raises CandidateFailure, InfraFailure.

        They stand idle, so that no process imports torch during timing. Those of `others`, which compare the same,
        start at the same time. Nothing is started if that takes much memory, if the device is small for so many
        processes, or if those of a side have to take turns (see `Artefact.scratch`).
        """
        size, benches = self.arena_bytes(plan), (self, *others)
        if self._takes_much(size) or any(artefact.scratch for artefact in sides.values()):
            return
        sessions = plan.sessions * len(benches)
        if sessions * len(sides) > limits_for(self.device_bytes).sides:
            return
        started = self._started(sessions, sides, size)
        for number, bench in enumerate(benches):
            bench._waiting = started[number * plan.sessions : (number + 1) * plan.sessions]
        if self.at_once and any(artefact.kind == "module" for artefact in sides.values()):
            self._make_first_calls([side for session in started for side in session])

    def measure(
        self,
        plan: Plan,
        sides: Sides,
        progress: Callable[[str], None],
        at_end: Callable[[list[CandidateProcess]], None] = lambda sides: None,
        timings: Timings | None = None,
    ) -> Timings:
        """Run all sessions of a plan; `at_end` is called with the sides of the last one.

        Earlier `timings` of the same sides are continued. Raises CandidateFailure, InfraFailure, Cancelled.
        """
        timings = timings or Timings({case.name: [] for case in self.cases}, self.objective)
        self.make_room()
        if not self._waiting:
            self.start_ahead(plan, sides)
        size = self.arena_bytes(plan)
        waiting, self._waiting = self._waiting, []
        try:
            for number in range(plan.sessions):
                progress(f"session {number + 1} of {plan.sessions}")
                if not waiting:
                    waiting = self._started(1, sides, size)
                self._await_ending()
                with self.neighbours.watched():
                    self.session(plan, waiting[0], timings)
                is_last = number == plan.sessions - 1
                if is_last:
                    at_end(waiting[0])
                self._retire(waiting.pop(0), size, is_last=is_last)
        finally:
            self._await_ending()
            for started in waiting:
                self.dismiss(started)
        return timings

    def _retire(self, sides: list[CandidateProcess], size: int, *, is_last: bool) -> None:
        """Dismiss the sides of a session that has ended. `size` is that of their arenas.

        Ending large ones takes 0.3 s, during which the next ones start if the device has room for the arenas of both.
        After the last session nobody waits: they end in `close`, or before anything else is measured.
        """
        if not (self.oracle.on_gpu and self._takes_much(size)):
            self.dismiss(sides)
        elif is_last:
            self._dismissed += sides
        elif 4 * size < self.device_bytes and not self._is_scarce:
            self._ending = threading.Thread(target=_close_together, args=(sides,))
            self._ending.start()
        else:
            _close_together(sides)

    def _await_ending(self) -> None:
        if self._ending is not None:
            self._ending.join()
            self._ending = None

    def make_room(self) -> None:
        """End large sides that an earlier measurement left, since what follows needs their memory."""
        large = [side for side in self._dismissed if self._takes_much(side.arena.size_bytes)]
        self._dismissed = [side for side in self._dismissed if side not in large]
        _close_together(large)

    def dismiss(self, sides: Sequence[CandidateProcess]) -> None:
        """Dismiss sides that are not needed any more.

        On a GPU, where closing its context takes a process a tenth of a second, small ones stand still until `close`,
        as many as the device has room for.
        """
        fit = len(self._dismissed) + len(sides) <= limits_for(self.device_bytes).sides
        if self.oracle.on_gpu and fit and not any(self._takes_much(side.arena.size_bytes) for side in sides):
            self._dismissed += sides
        else:
            _close_together(sides)

    def close(self) -> None:
        """End what was dismissed, and what was started ahead and never measured."""
        for sides in (*self._waiting, [self._checked] if self._checked else []):
            self.dismiss(sides)
        self._waiting, self._checked = [], None
        dismissed, self._dismissed = self._dismissed, []
        _close_together(dismissed)

    def _started(self, sessions: int, sides: Sides, size: int) -> list[list[CandidateProcess]]:
        """Start the sides of all sessions at the same time, since each takes seconds to import torch."""
        starts: list[Callable[[], CandidateProcess]] = []
        for _ in range(sessions):
            checked = self._taken()
            ready = {CANDIDATE: checked} if checked else {}
            arenas = self._arenas([name for name in sides if name not in ready], size)
            for name, artefact in sides.items():
                starts.append(ready.get(name) or self._start(name, artefact, arenas[name]()))
        started = started_together(starts)
        return [started[n : n + len(sides)] for n in range(0, len(started), len(sides))]

    def _arenas(self, names: list[str], size: int) -> dict[str, Callable[[], Arena]]:
        """Return how to get each side's arena: one of its own, or on a GPU one for all if calls take much memory.

        Sides take turns, and a shared arena is overwritten before each of them, so that none finds another's outputs.
        """
        if not names:
            return {}
        frugal = self._is_frugal(size)
        if not (self.oracle.on_gpu and (size >= SHARED_BYTES or frugal)):
            return {name: partial(self.oracle.arena, name, size) for name in names}
        shared = self.oracle.arena("shared", size)
        shared.users, shared.shared, shared.frugal = len(names), len(names) > 1, frugal
        return dict.fromkeys(names, lambda: shared)

    def _takes_much(self, arena_bytes: int) -> bool:
        """Return whether processes with arenas of this size take so much memory that few of them may live at once."""
        if not self.oracle.on_gpu:
            return arena_bytes > AT_ONCE_ON_CPU_BYTES
        if arena_bytes > AT_ONCE_BYTES or self._call_bytes > AT_ONCE_CALL_BYTES:
            return True
        together = MOST_SIDES * (arena_bytes + self._call_bytes)
        return bool(self.device_bytes) and together > AT_ONCE_SHARE * self.device_bytes

    @property
    def _is_scarce(self) -> bool:
        return self.oracle.on_gpu and limits_for(self.device_bytes).is_scarce

    def _is_frugal(self, arena_bytes: int) -> bool:
        """Return whether sides with arenas of this size give back what they keep before another computes."""
        is_little = arena_bytes + self._call_bytes <= FRUGAL_CALL_BYTES
        return self._takes_much(arena_bytes) or (self._is_scarce and not is_little)

    def _taken(self) -> Callable[[], CandidateProcess] | None:
        """Return the candidate that was checked, once, or None."""
        checked, self._checked = self._checked, None
        return None if checked is None else lambda: checked

    def _make_first_calls(self, sides: list[CandidateProcess]) -> None:
        """Make one call of every case by every candidate, all at the same time, because modules compile in their first
        calls."""
        for case in self.cases:
            contents = self.oracle.make(case, case.distributions[0], len(sides))
            make_first_calls(self.problem, sides, contents, self.limits.call_s, self.rng, at_once=True)
        self.oracle.reset()

    def session(self, plan: Plan, sides: list[CandidateProcess], timings: Timings) -> None:
        """Run one session: every case once, in random order, the sides at raised priority."""
        for side in sides:
            side.prioritise()
        # In random order, so that no case always follows the same one and finds its caches or clocks.
        for case in self.rng.sample(self.cases, len(self.cases)):
            earlier = timings.sessions[case.name]
            timer = CaseTimer(self.problem, self.oracle, sides, case, plan, self.limits.call_s, self.rng, earlier)
            earlier.append(timer.measure())
            self.oracle.reset()

    def candidate(self, name: str, artefact: Artefact, arena_size: int) -> CandidateProcess:
        """Start a fresh process."""
        return self.start(name, artefact, arena_size)()

    def start(
        self, name: str, artefact: Artefact, arena_size: int, *, with_torch: bool = False
    ) -> Callable[[], CandidateProcess]:
        """Make the arena now, and return how to start the process, in any thread.

        With `with_torch`, a kernel that does without torch otherwise gets a warm worker, if there is one.
        """
        return self._start(name, artefact, self.oracle.arena(name, arena_size), with_torch=with_torch)

    def _start(
        self, name: str, artefact: Artefact, arena: Arena, *, with_torch: bool = False
    ) -> Callable[[], CandidateProcess]:
        ahead = (
            self.warm_workers.take_for(self.limits, one_stream=artefact.one_stream)
            if self.warm_workers and (with_torch or artefact.kind == "module") and not artefact.env
            else None
        )
        return lambda: CandidateProcess(
            name, artefact, self.setups, arena, self.limits, thread_count(), self.cancel, ahead
        )

    def arena_bytes(self, plan: Plan) -> int:
        """Return the size of an arena that serves every case under a plan."""
        sizes = [self._case_bytes(self.oracle.make(case, case.distributions[0])[0], plan) for case in self.cases]
        self.oracle.reset()
        return max(sizes)

    def _case_bytes(self, content: Content, plan: Plan) -> int:
        """Return an arena's size for the largest request, on a GPU with room to move contents about.

        How the buffers of a call lie to each other changes its time. If they stayed in place, it would do so for a
        whole session.
        """
        if not self.oracle.on_gpu:
            return staging.arena_bytes(content, plan.doubled(plan.calls(content), content))
        least, most = (
            _with_slack(staging.arena_bytes(content, calls))
            for calls in (plan.most_in_a_request(content), plan.most_in_a_loop(content))
        )
        return least if self._takes_much(most) else most


def _with_slack(size_bytes: int) -> int:
    return size_bytes + min(MOST_SLACK_BYTES, size_bytes // 4)


def started_together(starts: Sequence[Callable[[], CandidateProcess]]) -> list[CandidateProcess]:
    """Start every participant in a thread of its own. Raises the first failure after closing those that did start."""
    with ThreadPoolExecutor(len(starts)) as threads:
        futures = [threads.submit(start) for start in starts]
    failure = next((error for future in futures if (error := future.exception())), None)
    # Waiting for all before closing any: a process that is still starting can't be closed.
    if failure is None:
        return [future.result() for future in futures]
    for future in futures:
        if future.exception() is None:
            future.result().close()
    raise failure


def overall_us(timings: Timings) -> dict[str, float]:
    """Return the candidate's median by case in µs."""
    return {case: median(timings.samples(case, CANDIDATE)) for case in timings.sessions}


def _close_together(sides: Sequence[CandidateProcess]) -> None:
    """Close sides at the same time. On a GPU, closing its context takes each process a quarter of a second."""
    if sides:
        with ThreadPoolExecutor(len(sides)) as threads:
            list(threads.map(_closed, sides))


def _closed(side: CandidateProcess) -> None:
    """Close a side whose oracle may be gone already, or whose evaluation was cancelled."""
    with suppress(InfraFailure, Cancelled):
        side.close()

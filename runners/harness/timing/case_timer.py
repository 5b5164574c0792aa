"""Time a candidate and its opponents in pairs, interleaved, on one case within one session.

A session is one fresh process per side. Within it, units of blocks in palindromic random order (A B B A) alternate
between K and 2K calls a block, so that the referee's clock can be compared with the inside clock (see `statistics`).
Every timed call has content that its process has not seen before, at addresses that change. The timed calls that are
checked are drawn after they were made; the last of a request is always among them.

On a GPU each block is made of two requests with contents of their own: one for device time, with the device held
until a call is enqueued, and one for call time, a loop as a user runs it. On a CPU there is one request and one time.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Sequence
from enum import StrEnum
from statistics import median

from runners.errors import BASELINE, CANDIDATE, PARENT, CandidateFailure
from runners.harness.memory.contents import Content
from runners.harness.memory.staging import StagedCall, arena_bytes, stage
from runners.harness.oracle.client import OracleClient
from runners.harness.processes.participant import CandidateProcess, RequestTimes
from runners.harness.timing.first_calls import make_first_calls
from runners.harness.timing.measurements import CaseSession, SideTimes
from runners.harness.timing.plan import MOST_LOOP_CALLS, Plan
from runners.harness.timing.statistics import TimedRequest, usable, within_deviation
from runners.harness.timing.timed_outputs import TimedOutputs
from runners.job import Flag, Objective, Status
from runners.problems.base import Case, Problem

# A call that takes this many times its device time in a loop is paced by the host.
HOST_BOUND = 1.2
# For how long to warm the processor before a loop that the host paces, and how long the loop should take.
WARM_US, LOOP_US = 10_000.0, 25_000.0
# A call that the host needs so long to enqueue warms the processor by itself.
LONG_US = WARM_US
# A call in a loop, whose caches are warm, takes at least this share of its time on a held device.
LEAST_IN_A_LOOP = 1 / 3
# What the first call of a loop may cost beside the others, in a process that has just been woken.
FIRST_CALL_US = 1000.0
# In blocks of at most FEW_CALLS, the first call after a change of sides weighs on the median.
FEW_CALLS, FEW_UNITS = 2, 2
# A call that is held for PROBE_S and enqueued that much later than without has waited for the device.
PROBE_S, NOTICEABLE_US = 0.005, 2500.0


class Way(StrEnum):
    """Choose how the calls of a request are made: one by one (`single`), on a held device, or in a loop."""

    SINGLE = "single"
    HELD = "held"
    STEADY = "steady"


class CaseTimer:
    """Measure one case with the processes of one session."""

    def __init__(
        self,
        problem: Problem,
        oracle: OracleClient,
        sides: list[CandidateProcess],
        case: Case,
        plan: Plan,
        call_s: float,
        rng: random.Random,
        earlier: Sequence[CaseSession] = (),
    ) -> None:
        self._problem, self._oracle, self._sides, self._earlier = problem, oracle, sides, earlier
        self._case, self._plan, self._call_s, self._rng = case, plan, call_s, rng
        self._distribution = case.distributions[0]
        self._result = CaseSession(case, {side.name: SideTimes() for side in sides})
        self._outputs = TimedOutputs(oracle, self._result, plan, rng, is_first=not earlier)
        self._loop_calls, self._warm_us = 0, 0.0
        # By side: how long a call takes in a loop, and how often one that is alone is repeated.
        self._call_us: dict[str, float] = {}
        self._repeats: dict[str, int] = {}
        self._last_side = ""
        self._one_by_one = self._long = self._in_pairs = False

    def measure(self) -> CaseSession:
        """Warm up, choose the block size, and time units until they are precise enough. Raises CandidateFailure."""
        try:
            content, calls = self._warm_up()
            self._one_by_one = calls == self._plan.doubled(calls, content)
            self._outputs.begin(self._fewest_units)
            started = time.monotonic()
            for unit in range(self._plan.units):
                self._time_unit(unit, self._plan.doubled(calls, content) if unit % 2 else calls)
                if self._is_enough(unit + 1, time.monotonic() - started):
                    break
            for side in self._sides:
                self._result.sides[side.name].overwrites = side.overwrites
            self._release_others(None)
            self._outputs.check()
        except CandidateFailure as failure:
            failure.case = failure.case or self._case.name
            raise
        return self._result

    def _is_enough(self, units: int, seconds: float) -> bool:
        """Stop by the width of the interval or by time, never by which side is ahead, so that stopping favours neither.

        An even number of units has as many of K as of 2K calls.
        """
        if units < self._fewest_units or (units % 2 and not self._units_alike):
            return False
        if seconds > self._plan.case_s:
            return True
        if units < self._least_units or BASELINE not in self._result.sides:
            return False
        limits = {Objective.DEVICE: self._plan.precision, Objective.CALL: self._plan.call_precision}
        return all(self._standard_error(basis) < limits[basis] for basis in self._compared)

    @property
    def _least_units(self) -> int:
        """Return the least units.

        A session after another can end sooner, since the earlier one shows how much the units of a session vary; and
        sooner still if calls are so large that every request has one alone, or if the host needs long for each.
        """
        if not self._earlier:
            return self._plan.least_units
        return 1 if self._units_alike else min(FEW_UNITS, self._plan.least_units)

    @property
    def _fewest_units(self) -> int:
        """Return the units that are timed however long they take."""
        return min(2, self._least_units)

    @property
    def _units_alike(self) -> bool:
        """Return whether units do not alternate between K and 2K calls."""
        return self._one_by_one or self._long

    @property
    def _compared(self) -> list[Objective]:
        """Return the times that have to be precise."""
        if not self._oracle.on_gpu:
            return [Objective.DEVICE]
        if not self._result.held:
            return [Objective.CALL]
        return [Objective.DEVICE] if self._one_by_one else [Objective.DEVICE, Objective.CALL]

    def _standard_error(self, basis: Objective) -> float:
        """Return the standard error of this session's mean log-ratio, by the variation within all sessions so far."""
        sessions = [*(session.unit_ratios(BASELINE, basis) for session in self._earlier)]
        ratios = self._result.unit_ratios(BASELINE, basis)
        return within_deviation([*sessions, ratios]) / math.sqrt(len(ratios))

    def _warm_up(self) -> tuple[Content, int]:
        """Make the first calls, in which a side allocates and compiles; return a content and the calls of a block."""
        processors = os.sched_getaffinity(0)
        self._confine(processors)  # whoever compiles may use them all
        first = self._make_first_calls()
        self._confine({self._rng.choice(sorted(processors))})
        most = self._plan.calls(first)
        second = self._make(min(2, self._plan.doubled(most, first)))
        per_call = [median(self._rehearsed(side, second, Way.SINGLE).inside_us) for side in self._sides]
        wanted = self._plan.block_us / max(1.0, sum(per_call) / len(per_call))
        calls = max(1, min(most, round(wanted)))
        if self._oracle.on_gpu:
            self._rehearse(first, calls)
        return first, calls

    def _confine(self, processors: set[int]) -> None:
        """Confine all sides to processors of the host, if they compute on a GPU.

        Sides that share one find it awake. On processors of their own, which sleep while the other side runs, the same
        4,000 launches took 26 or 38 ms on an H200's host, for seconds at a time; on one they took 26 to 28 ms.
        """
        if self._oracle.on_gpu:
            for side in self._sides:
                side.pin(processors)

    def _make_first_calls(self) -> Content:
        """Make each side's first call of this case, all sides at once if memory has room for them, and return a
        content.

        Nothing of these calls is judged.
        """
        contents = self._make(len(self._sides))
        at_once = self._oracle.on_gpu and not any(side.arena.frugal for side in self._sides)
        make_first_calls(self._problem, self._sides, contents, self._call_s, self._rng, at_once=at_once)
        return contents[0]

    def _rehearse(self, content: Content, calls: int) -> None:
        """Make a loop of the largest block, so that no timed call asks the device for memory.

        Also find out which sides can be held, and choose the length of loops.
        """
        contents = self._make(self._plan.doubled(calls, content))
        host_bound = False
        for side in self._sides:
            looped = self._looped(side, contents)
            host_bound |= self._is_host_bound(side, contents[:1], looped.inside_us[0])
        if self._plan.most_in_a_request(content) > 1:
            self._choose_loop(content, calls, host_bound=host_bound)
        elif not self._result.held:
            self._loop_in_pairs(content)
        elif not content.written:
            # One call alone would show a process that has just been woken.
            self._warm_us = WARM_US
            self._repeats = {name: min(MOST_LOOP_CALLS, _in_a_loop(us)) for name, us in self._call_us.items()}

    def _looped(self, side: CandidateProcess, contents: list[Content]) -> RequestTimes:
        """Make an untimed loop, and keep how long its calls take."""
        looped = self._rehearsed(side, contents, Way.STEADY)
        self._call_us[side.name] = self._loop_samples(side, looped, len(contents))[0]
        return looped

    def _loop_in_pairs(self, content: Content) -> None:
        """Time large calls in pairs, of which only the second is measured, if memory allows.

        A single call includes the time that a process takes to wake: 275 instead of 78 µs on an H200. It is not
        repeated, since call time decides here, and a candidate could recognise contents that it has seen. The referee's
        clock cannot tell the two calls apart, so this is done only if the candidate's device time is known.
        """
        fits = self._plan.most_in_a_loop(content) > 1 and all(
            side.arena.size_bytes >= arena_bytes(content, 2) and not side.arena.frugal for side in self._sides
        )
        if not (fits and self._result.holds(CANDIDATE)):
            return
        self._in_pairs = True
        contents = self._make(2)
        for side in self._sides:
            self._looped(side, contents)
        self._choose_loop(content, 1, host_bound=True)

    def _is_host_bound(self, side: CandidateProcess, contents: list[Content], free_us: float) -> bool:
        """Return whether the host paces a side's calls, and note why they cannot be held.

        A side that could not be held in an earlier session is not tried again, since call time decides then.
        """
        times = self._result.sides[side.name]
        times.waits = next((e.sides[side.name].waits for e in self._earlier if e.sides[side.name].waits), "")
        if times.waits:
            return True
        held = self._untimed(side, contents, Way.HELD)
        if not held.held:
            times.waits = self._why_late(side, contents, free_us)
        return bool(times.waits) or self._call_us[side.name] > HOST_BOUND * held.inside_us[0]

    def _choose_loop(self, content: Content, calls: int, *, host_bound: bool) -> None:
        """Choose how long loops are: as many calls as a block has if the device sets the pace.

        If the host does, whose speed varies far more, warm the processor and loop for longer. The first call of a loop,
        which is not counted, warms it if it is long.
        """
        if host_bound:
            most, slowest_us = self._plan.most_in_a_loop(content), max(self._call_us.values())
            self._loop_calls = min(most, MOST_LOOP_CALLS, max(2, 1 + _in_a_loop(slowest_us)))
            self._long = not self._result.held and slowest_us >= LONG_US
            self._warm_us = 0.0 if content.written else WARM_US
        elif calls == 1:
            self._loop_calls = 2  # the first of a loop is not counted

    def _why_late(self, side: CandidateProcess, contents: list[Content], free_us: float) -> str:
        """Tell a call that waits for the device from one that fills its queue.

        The device is held for a moment, which is too short to fill the queue: a call that waits is enqueued later by
        that moment.
        """
        calls = stage(side.arena, contents, self._rng)
        run = side.run_held([call.message for call in calls], self._call_s, PROBE_S)
        return Flag.SYNCHRONISES if run.enqueue_us[0] - free_us > NOTICEABLE_US else Flag.LAUNCH_BOUND

    def _make(self, count: int) -> list[Content]:
        return self._oracle.make(self._case, self._distribution, count)

    def _time_unit(self, unit: int, calls: int) -> None:
        # The order of a unit's first half is reversed in its second, which makes the palindrome.
        drawn = self._rng.sample(self._sides, len(self._sides))
        for way in self._ways(unit):
            order = [side for side in drawn if way is not Way.HELD or self._may_hold(side)]
            if way is Way.STEADY and self._loop_calls:
                calls = self._loop_calls
            counts = {side.name: self._untimed_calls(side, way, calls) for side in order}
            contents = self._make(2 * calls + 2 * sum(counts.values()))
            untimed = contents[2 * calls :]
            self._outputs.draw(unit, contents[0])
            blocks: dict[str, list[float]] = {side.name: [] for side in order}
            for half, sides in zip(
                (contents[:calls], contents[calls : 2 * calls]), (order, order[::-1]), strict=True
            ):
                # One draw for all sides of a half, so that their buffers lie at the same offsets.
                place = self._rng.getrandbits(64)
                for side in sides:
                    if count := counts[side.name]:
                        again = Way.STEADY if way is Way.STEADY and count > 1 else Way.SINGLE
                        self._untimed(side, [untimed.pop() for _ in range(count)], again)
                    blocks[side.name].append(self._block(side, half, self._way_of(side, way), place))
            basis = Objective.CALL if way is Way.STEADY else Objective.DEVICE
            for name, medians in blocks.items():
                self._result.sides[name].of(basis).blocks.append(medians)

    def _untimed_calls(self, side: CandidateProcess, way: Way, calls: int) -> int:
        """Return how many untimed calls, on inputs of their own, a side makes before its block, because the device has
        just served another side.

        The first call after such a change was up to an eighth slower on an H100 if it touches gigabytes, probably
        because the device's caches of address translations are cold. In longer blocks the median ignores it, and a
        loop leaves out its first call anyway. A side that gave its memory back makes as many calls as the block has, so
        that no timed call asks the device for memory, unless the host takes long for each call, which hides that.
        """
        if not self._oracle.on_gpu:
            return 0
        few = 0 if self._is_long(side) else FEW_CALLS
        if side.arena.frugal and calls > 1 and few:
            return calls
        if way is Way.STEADY:
            few = 0 if self._warm_us else 1
        return int(calls <= few)

    def _release_others(self, side: CandidateProcess | None) -> None:
        """Have all sides but one give back what their allocators keep, if calls take much memory (see `Arena.frugal`).

        Results and intermediate tensors of two sides would take the device's memory twice. The untimed calls before
        timed ones allocate their own again.
        """
        for other in self._sides:
            if other is not side and other.arena.frugal:
                other.release()

    def _ways(self, unit: int) -> list[Way]:
        """Return how the calls of a unit are made.

        If the device cannot be held for some side, call time decides, and a first unit of single calls is enough to
        show, in the first session. A candidate that can be held is, in the first unit of every session, since that
        bounds its call time. If all can and calls are large, a first unit of loops is enough. Where only the baseline
        cannot be held, the others are, since device time decides between candidate and parent.
        """
        if not self._oracle.on_gpu:
            return [Way.SINGLE]
        if self._result.held:
            return [Way.HELD] if self._one_by_one and unit else [Way.HELD, Way.STEADY]
        if not (unit or self._earlier):
            return [Way.SINGLE, Way.STEADY]
        is_bounding = not unit and self._result.holds(CANDIDATE)
        return [Way.HELD, Way.STEADY] if is_bounding or self._parent_is_held else [Way.STEADY]

    @property
    def _parent_is_held(self) -> bool:
        return PARENT in self._result.sides and self._result.holds(CANDIDATE, PARENT)

    def _may_hold(self, side: CandidateProcess) -> bool:
        return self._oracle.on_gpu and self._result.holds(side.name)

    def _way_of(self, side: CandidateProcess, way: Way) -> Way:
        """Hold the device for a side that allows it, also where another does not.

        Call time decides then, but this side's device time is shown, and is its own instead of the host's.
        """
        return Way.HELD if way is Way.SINGLE and self._may_hold(side) else way

    def _block(self, side: CandidateProcess, contents: list[Content], way: Way, place: int) -> float:
        """Time one block. `place` seeds the offsets of its buffers, which are the same for every side.

        Single calls that move gigabytes were up to 15 % faster than the rest on an H100; that their addresses decide
        it is a guess.
        """
        calls, run = self._request(side, contents, way, random.Random(place))  # noqa: S311 - no secret
        times = self._result.sides[side.name]
        series = times.of(Objective.CALL if way is Way.STEADY else Objective.DEVICE)
        samples = self._loop_samples(side, run, len(calls)) if way is Way.STEADY else run.inside_us
        if not usable(samples):
            reason = "reported a time that is zero, negative or not finite"
            raise CandidateFailure(Status.SUSPECT, reason, side=side.name)
        series.samples_us += samples
        times.busy_us += run.busy_us
        times.enqueue_us += run.enqueue_us
        series.requests.append(
            self._loop_request(side, run, len(calls))
            if way is Way.STEADY
            else TimedRequest(len(calls), sum(run.inside_us), run.outside_us)
        )
        return median(samples)

    def _loop_samples(self, side: CandidateProcess, run: RequestTimes, calls: int) -> list[float]:
        """Return the time of a call in a loop in µs: the mean over all but the first, or the first if it is alone.

        A single call that was repeated, or the second of a pair, counts as no faster than on a device that was held:
        there its contents were new, and the referee's clock measured this one call. That clock cannot tell the calls of
        a loop from what comes before them, so the others are bounded as well, less closely.
        """
        first_us, others_us = run.inside_us
        others = calls - 1 or self._repeats.get(side.name, 0)
        if not others:
            return [first_us]
        mean_us = others_us / others
        held = self._result.sides[side.name].device.samples_us
        if not (held and self._may_hold(side) and usable([mean_us])):
            return [mean_us]
        share = 1.0 if calls == 1 or self._in_pairs else LEAST_IN_A_LOOP
        return [max(mean_us, share * median(held))]

    def _warming_us(self, side: CandidateProcess) -> float:
        """Return for how long a side's loop warms the processor. Calls that take the host long need no such time."""
        return 0.0 if self._is_long(side) else self._warm_us

    def _is_long(self, side: CandidateProcess) -> bool:
        """Return whether the host needs long for a side's call, in a session whose sides cannot all be held."""
        return self._long and self._call_us[side.name] >= LONG_US

    def _loop_request(self, side: CandidateProcess, run: RequestTimes, calls: int) -> TimedRequest:
        """Return a loop as the two clocks saw it, without what came before it.

        The process claims how long that was, so no more is believed than it can have taken.
        """
        first_us, others_us = run.inside_us
        others = calls - 1 or self._repeats.get(side.name, 0)
        if not others:
            return TimedRequest(1, first_us, run.outside_us)
        most_us = self._warming_us(side) + FIRST_CALL_US + 3 * others_us / others
        return TimedRequest(others, others_us, run.outside_us - min(first_us, most_us))

    def _request(
        self, side: CandidateProcess, contents: list[Content], way: Way, placing: random.Random
    ) -> tuple[list[StagedCall], RequestTimes]:
        """Run calls that are staged in the arena, keep outputs for the checks, and check guards and inputs."""
        calls, run = self._run(side, contents, way, placing)
        self._outputs.take(side, calls, self._call_s)
        return calls, run

    def _rehearsed(self, side: CandidateProcess, contents: list[Content], way: Way) -> RequestTimes:
        """Measure calls for planning. A side that gave its memory back makes the same calls once before."""
        if side.arena.frugal:
            self._untimed(side, contents, way)
        return self._untimed(side, contents, way)

    def _untimed(self, side: CandidateProcess, contents: list[Content], way: Way) -> RequestTimes:
        """Make calls that only prepare what is timed. Their outputs are not checked."""
        return self._run(side, contents, way, self._rng)[1]

    def _run(
        self, side: CandidateProcess, contents: list[Content], way: Way, placing: random.Random
    ) -> tuple[list[StagedCall], RequestTimes]:
        if self._last_side not in ("", side.name):
            self._release_others(side)
        self._last_side = side.name
        calls = stage(side.arena, contents, placing)
        timeout_s = self._call_s * len(calls)
        messages = [call.message for call in calls]
        if way is Way.STEADY:
            repeats = self._repeats.get(side.name, 0)
            return calls, side.run_steadily(messages, timeout_s * (1 + repeats), self._warming_us(side), repeats)
        return calls, (side.run_held if way is Way.HELD else side.run)(messages, timeout_s)


def _in_a_loop(call_us: float) -> int:
    """Return how many calls a loop has after its first."""
    return math.ceil(LOOP_US / max(1.0, call_us))

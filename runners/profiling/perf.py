"""Count a candidate's processes on a CPU with Linux `perf stat`, from outside, so that the sandbox stays as it is.

Counting starts and stops at a word through a pipe, which perf acknowledges (`--control`, perf 5.10 or newer). A
machine without hardware counters, such as most virtual machines, still tells what the kernel itself counts: cores in
use, page faults, context switches.

Shares are rough. That of the arithmetic is instructions per cycle over a core that issues four; that of the memory is
cache misses of 64 bytes each over the copy bandwidth that `python -m runners probe` measured.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from runners.profiling.base import WHOLE_PROCESS, Attached, ProfilerError, Seen, number
from runners.targets import Target, ceilings
from runners.waiting import readable

HARDWARE = ("cycles", "instructions", "cache-references", "cache-misses", "branch-misses")
SOFTWARE = ("task-clock", "page-faults", "context-switches")
# Instructions that a current core can issue per cycle; some issue more, so shares are rough.
ISSUE_WIDTH = 4
# A cache line of x86-64 and of most ARM cores.
LINE_BYTES = 64
ANSWER_S = 10.0
PARANOID = "/proc/sys/kernel/perf_event_paranoid"


class Perf(Attached):
    """Drive `perf stat`."""

    name = "perf"

    def missing(self) -> str:
        """Return a text if perf is not installed or not permitted to count."""
        return _missing()

    @contextmanager
    def counting(self, pids: Sequence[int]) -> Iterator[list[str]]:
        """Count from perf's acknowledgement of the start to that of the stop."""
        printed: list[str] = []
        with _Control(pids) as control:
            control.say("enable")
            started_ns = time.monotonic_ns()
            yield printed
            # perf's own duration_time adds up the time of every thread that it was attached to.
            elapsed_ns = time.monotonic_ns() - started_ns
            control.say("disable")
            printed += [control.end(), str(elapsed_ns)]

    def read(self, outputs: Sequence[str], calls: int, target: Target) -> list[Seen]:
        """Parse lines of value, unit, event, …; a value may be `<not supported>` or `<not counted>`.

        The second output is the time that passed in ns.
        """
        counted = counts(outputs[0])
        if "task-clock" not in counted:
            raise ProfilerError(f"perf counted nothing: {outputs[0].strip()[-200:]}")
        duration_ns = int(outputs[1])
        details = {
            "cores_busy": counted["task-clock"] * 1e6 / duration_ns,
            **{_named(event): counted[event] / calls for event in SOFTWARE[1:] if event in counted},
            **_hardware(counted),
        }
        return [
            Seen(
                WHOLE_PROCESS, 1, duration_ns / calls / 1e3,
                _compute_share(counted), _memory_share(counted, duration_ns, target), details,
            )
        ]  # fmt: skip


class _Control:
    """Run a perf that waits for a word before it counts."""

    def __init__(self, pids: Sequence[int]) -> None:
        told, self._tell = os.pipe()
        self._acknowledged, acknowledge = os.pipe()
        events = ",".join([*HARDWARE, *SOFTWARE])
        command = ["perf", "stat", "-x,", "-e", events, "--delay=-1", f"--control=fd:{told},{acknowledge}"]
        self._process = subprocess.Popen(
            [*command, "-p", ",".join(map(str, pids))],
            pass_fds=(told, acknowledge),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # LC_ALL=C keeps the decimal point, which perf writes in the locale's way.
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
        )
        os.close(told)
        os.close(acknowledge)

    def __enter__(self) -> _Control:
        return self

    def say(self, word: str) -> None:
        """Send a word and wait for the answer. Raises ProfilerError if perf has ended or does not answer."""
        try:
            os.write(self._tell, f"{word}\n".encode())
            answered = readable(self._acknowledged, ANSWER_S) and os.read(self._acknowledged, 16)
        except BrokenPipeError:
            answered = b""
        if not answered:
            raise ProfilerError(f"perf does not count: {self.end().strip()[:200]}")

    def end(self) -> str:
        """Stop perf and return what it printed."""
        self._process.send_signal(signal.SIGINT)
        try:
            return self._process.communicate(timeout=ANSWER_S)[1]
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.communicate()[1]

    def __exit__(self, *_exc: object) -> None:
        os.close(self._tell)
        os.close(self._acknowledged)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def counts(output: str) -> dict[str, float]:
    """Return the counts by event (`cycles:u` is `cycles`), without events that were not counted."""
    found = {}
    for line in output.splitlines():
        fields = line.split(",")
        if len(fields) >= 3 and (value := number(fields[0])) is not None:
            found[fields[2].partition(":")[0]] = value
    return found


def _hardware(counted: dict[str, float]) -> dict[str, float]:
    figures = {}
    if counted.get("cycles"):
        figures["instructions_per_cycle"] = counted.get("instructions", 0.0) / counted["cycles"]
    if counted.get("cache-references") and "cache-misses" in counted:
        figures["cache_miss_percent"] = 100 * counted["cache-misses"] / counted["cache-references"]
    return figures


def _compute_share(counted: dict[str, float]) -> float | None:
    per_cycle = _hardware(counted).get("instructions_per_cycle")
    return None if per_cycle is None else per_cycle / ISSUE_WIDTH


def _memory_share(counted: dict[str, float], duration_ns: float, target: Target) -> float | None:
    bandwidth = ceilings(target.key).copy_bandwidth
    if "cache-misses" not in counted or not bandwidth:
        return None
    return counted["cache-misses"] * LINE_BYTES / duration_ns * 1e9 / bandwidth


def _named(event: str) -> str:
    return event.replace("-", "_") + "_a_call"


@cache
def _missing() -> str:
    if shutil.which("perf") is None:
        return "perf is not installed (Debian: linux-perf)"
    command = ["perf", "stat", "-x,", "-e", "task-clock", "--", "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"perf does not run: {error}"
    if done.returncode:
        return f"counting is not permitted ({PARANOID}): {done.stderr.strip()[:120]}"
    return ""

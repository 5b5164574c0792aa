"""Test when the processes of a session end whose arenas take much of a GPU's memory."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from runners.harness.timing.plan import FULL
from runners.harness.timing.sessions import AT_ONCE_BYTES, Bench
from runners.job import Limits

LARGE = 8 * AT_ONCE_BYTES


class Gpu:
    """Stand for an oracle on a GPU."""

    on_gpu = True


class LargeSide:
    """Stand for a process with a large arena, which notes when it ends."""

    def __init__(self, story: list[str], session: int, ending: threading.Event) -> None:
        self.arena: Any = type("Arena", (), {"size_bytes": LARGE})()
        self._story, self._session, self._ending = story, session, ending

    def close(self) -> None:
        assert self._ending.wait(10.0)
        self._story.append(f"end {self._session}")


class Sessions(Bench):
    """Run sessions in which nothing is measured, and tell the story of their processes."""

    def tell(self) -> list[str]:
        """Prepare, and return the story to come."""
        self.story: list[str] = []
        self.may_end: list[threading.Event] = []
        self.held_up = True
        return self.story

    @property
    def started(self) -> int:
        """Return how many sessions have started."""
        return len(self.may_end)

    def arena_bytes(self, plan: Any) -> int:
        return LARGE

    def start_ahead(self, plan: Any, sides: Any, others: Any = ()) -> None:
        """Start nothing ahead, as for all large arenas."""

    def _started(self, sessions: int, sides: Any, size: int) -> Any:
        self.may_end.append(threading.Event())
        self.story.append(f"start {self.started}")
        # A held-up end goes on once the next session has started, which therefore must not wait for it.
        let_go = self.may_end[:-1] if self.held_up else self.may_end
        for event in let_go:
            event.set()
        return [[LargeSide(self.story, self.started, self.may_end[-1])]]

    def session(self, plan: Any, sides: Any, timings: Any) -> None:
        self.story.append(f"time {self.started}")


def bench(device_bytes: int) -> Sessions:
    anything: Any = None
    oracle: Any = Gpu()
    return Sessions(
        anything, anything, oracle, [], anything, Limits(), random.Random(1), None, device_bytes=device_bytes
    )


@pytest.mark.parametrize("device_bytes", [80 << 30, 40 << 30])
def test_the_next_session_starts_while_the_last_one_ends_and_waits_for_that_before_timing(
    device_bytes: int,
) -> None:
    one = bench(device_bytes)
    story = one.tell()
    one.measure(FULL, {}, lambda text: None)
    for number in (1, 2):
        assert story.index(f"start {number + 1}") < story.index(f"end {number}") < story.index(f"time {number + 1}")
    assert "end 3" not in story
    one.may_end[-1].set()
    one.close()
    assert story[-1] == "end 3"


@pytest.mark.parametrize("device_bytes", [0, 24 << 30])
def test_where_the_device_may_lack_room_a_session_ends_before_the_next_starts(device_bytes: int) -> None:
    one = bench(device_bytes)
    story = one.tell()
    one.held_up = False
    one.measure(FULL, {}, lambda text: None)
    assert story == ["start 1", "time 1", "end 1", "start 2", "time 2", "end 2", "start 3", "time 3"]


def test_what_the_last_session_left_ends_before_anything_else_is_measured() -> None:
    one = bench(80 << 30)
    story = one.tell()
    one.held_up = False
    one.measure(FULL, {}, lambda text: None)
    one.measure(FULL, {}, lambda text: None)
    assert story.index("end 3") < story.index("start 4")


class Built:
    """Stand for an artefact."""

    scratch, kind = "", "library"


class StartedTogether(Bench):
    """Note how many sessions are started together."""

    def arena_bytes(self, plan: Any) -> int:
        return 1 << 20

    def _started(self, sessions: int, sides: Any, size: int) -> Any:
        return [[] for _ in range(sessions)]


@pytest.mark.parametrize(
    ("device_bytes", "call_bytes", "sessions"),
    [
        (8 << 30, 0, 0),  # so many contexts leave too little room
        (80 << 30, 0, FULL.sessions),
        (0, 0, FULL.sessions),
        (80 << 30, 1 << 30, FULL.sessions),
        (24 << 30, 1 << 30, 0),  # nine such calls would fill a third of it
        (24 << 30, 512 << 20, FULL.sessions),
    ],
)
def test_on_a_small_device_sessions_start_one_after_the_other(
    device_bytes: int, call_bytes: int, sessions: int
) -> None:
    anything: Any = None
    oracle: Any = Gpu()
    sides: Any = {"candidate": Built(), "baseline": Built()}
    one = StartedTogether(
        anything, anything, oracle, [], anything, Limits(), random.Random(1), None, device_bytes=device_bytes
    )
    one._call_bytes = call_bytes
    one.start_ahead(FULL, sides)
    assert len(one._waiting) == sessions

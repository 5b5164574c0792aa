"""Test the conversation about calls on a held device, with a thread in the place of the process and its device."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runners.candidate.calls import Caller
from runners.candidate.channel import Channel, ChannelClosed
from runners.candidate.device_clock import Reached
from runners.errors import CandidateFailure
from runners.harness.processes import participant
from runners.harness.processes.participant import CandidateProcess
from runners.harness.processes.peer import Peer
from runners.job import Status

# How long the simulated process sleeps on before it notices a question.
WAKE_S = 0.004


class Gate:
    """Stand in for the word that the device waits for."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def write(self, offset: int, data: bytes) -> None:
        self.opened.set()


class Stopped:
    """Stand in for a process that is stopped between requests."""

    def resume(self) -> None:
        """Do nothing."""

    def pause(self) -> int:
        return time.perf_counter_ns()


class Far(threading.Thread):
    """Answer as a process would whose calls take `device_s` on the device from the moment it is released.

    One that is `hasty` says that a call is done without waiting for the device. If `waits_inside`, its first call waits
    for the device before it has been enqueued.
    """

    def __init__(self, peer: Peer, gate: Gate, device_s: float, *, hasty: bool, waits_inside: bool) -> None:
        super().__init__(daemon=True)
        self._channel, self._gate = Channel(peer.far_socket.fileno()), gate
        self._device_s, self._hasty, self._waits_inside = device_s, hasty, waits_inside

    def run(self) -> None:
        try:
            while True:
                question = self._channel.receive()
                answer = self._answer(question["op"], question.get("number"))
                self._channel.send({"nonce": question["nonce"], "ok": True, **answer})
        except (ChannelClosed, OSError):
            return

    def _answer(self, op: str, number: int | None) -> dict[str, Any]:
        if op == "arm":
            self._gate.opened.clear()
            if self._waits_inside and number == 0:
                self._compute()
            return {"enqueue_ns": 10_000}
        if op == "reach" and not self._hasty:
            device = threading.Thread(target=self._compute)
            device.start()
            time.sleep(WAKE_S)
            device.join()
        return {"inside_ns": [round(self._device_s * 1e9)], "busy_ns": [0]}

    def _compute(self) -> None:
        self._gate.opened.wait()
        time.sleep(self._device_s)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., CandidateProcess]]:
    """Return a function that returns a side whose far end is simulated."""
    monkeypatch.setattr(participant, "SETTLE_S", 5 * WAKE_S)
    made: list[tuple[Peer, Far]] = []

    def make(device_s: float, *, hasty: bool = False, waits_inside: bool = False) -> CandidateProcess:
        side: Any = object.__new__(CandidateProcess)
        side.name, side._peer, side._gate, side._process = "candidate", Peer(), Gate(), Stopped()
        far = Far(side._peer, side._gate, device_s, hasty=hasty, waits_inside=waits_inside)
        made.append((side._peer, far))
        far.start()
        return side  # type: ignore[no-any-return]

    yield make
    for peer, far in made:
        # The far end reads until its stream ends; only then may its descriptor's number be used for something else.
        peer._socket.shutdown(socket.SHUT_RDWR)
        far.join()
        peer.close()


def test_waking_weighs_as_little_on_a_short_call_as_on_a_long_one(process: Callable[..., CandidateProcess]) -> None:
    # A long call would hide it and a short one would not, so that the short one seemed to claim too much.
    def least_beside_us(device_s: float) -> float:
        """Return what is clocked beside the device in the best of 40 calls: other programs only add to it."""
        side = process(device_s)
        calls = [side.run_held([{}], 10.0) for _ in range(40)]
        assert all(times.held for times in calls)
        return min(times.outside_us - times.inside_us[0] for times in calls)

    assert abs(least_beside_us(0.0005) - least_beside_us(0.02)) < 1e6 * WAKE_S / 2


def test_a_call_that_is_done_before_the_device_was_released_for_it_is_suspect(
    process: Callable[..., CandidateProcess],
) -> None:
    side = process(0.001, hasty=True)
    with pytest.raises(CandidateFailure, match="before the device was released") as caught:
        side.run_held([{}], 10.0)
    assert caught.value.status is Status.SUSPECT
    assert side._gate.opened.is_set()  # type: ignore[union-attr]  # and the device waits for nobody


def test_a_call_that_is_enqueued_late_excuses_none_of_the_others(process: Callable[..., CandidateProcess]) -> None:
    with pytest.raises(CandidateFailure, match="before the device was released"):
        process(0.001, hasty=True, waits_inside=True).run_held([{}, {}], 10.0, patience_s=0.01)


def test_a_call_that_waits_for_the_device_is_clocked_from_its_release(
    process: Callable[..., CandidateProcess],
) -> None:
    times = process(0.05, hasty=True, waits_inside=True).run_held([{}], 10.0, patience_s=0.01)
    assert not times.held
    assert times.outside_us >= 50_000


class Overwriting:
    """Stand in for a callee on a GPU whose calls all return the same memory."""

    overwrites = True

    def __init__(self) -> None:
        self.done: list[str] = []

    def prepare(self, call: dict[str, Any]) -> str:
        return str(call["name"])

    def arm(self, prepared: str) -> int:
        self.done.append(f"arm {prepared}")
        return 1

    def reach(self) -> Reached:
        self.done.append("reach")
        return Reached(1, 0)

    def save(self, prepared: str) -> None:
        self.done.append(f"save {prepared}")

    def finish(self, prepared: str, call: dict[str, Any]) -> None:
        self.done.append(f"finish {prepared}")


def test_what_the_next_call_would_overwrite_is_copied_before_it_and_not_within_the_referees_clock() -> None:
    callee = Overwriting()
    caller = Caller(callee)  # type: ignore[arg-type]
    caller.answer({"op": "lay", "calls": [{"name": "a"}, {"name": "b"}, {"name": "c"}]})
    for number in range(3):
        for op in ("arm", "reach"):
            caller.answer({"op": op, "number": number})
    steps = ["arm a", "reach", "save a", "arm b", "reach", "save b", "arm c", "reach", "finish c"]
    assert callee.done == steps

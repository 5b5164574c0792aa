"""Answering the referee's questions about one callee; the same for candidates and baselines."""

from __future__ import annotations

from typing import Any, Protocol


class Callee(Protocol):
    """Something that can be called on buffers of the arena."""

    def set_case(self, case: dict[str, Any]) -> None:
        """Take the layout of the coming calls."""

    def prepare(self, call: dict[str, Any]) -> Any:
        """Arguments of one call, before the clock starts."""

    def run(self, prepared: Any) -> int:
        """One call; its duration in nanoseconds by this process's clock."""

    def finish(self, prepared: Any, call: dict[str, Any]) -> None:
        """Bring the outputs of one call into the arena."""

    def report(self) -> dict[str, Any]:
        """What else to answer about the calls just made."""


class Caller:
    """`ready` answers at once; `case` sets the layout; `run` makes calls in order and returns their inside times;
    `store` brings the outputs of all but the last into the arena. The last one's are brought before `run` is answered,
    so that work left to a thread shows as a wrong output."""

    def __init__(self, callee: Callee) -> None:
        self._callee = callee
        self._pending: list[tuple[Any, dict[str, Any]]] = []

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Answer one question. Raises whatever the callee raises."""
        if question["op"] == "ready":
            return {}
        if question["op"] == "case":
            self._callee.set_case(question["case"])
            return {}
        if question["op"] == "store":
            return self._store()
        if question["op"] == "repeated":
            return self._repeat(question["call"], question["count"])
        if question["op"] in ("floor", "replay", "kernels"):
            return self._closer(question)
        return self._run(question["calls"])

    def forget(self) -> None:
        """Let go of what was returned."""
        self._pending.clear()

    def _run(self, calls: list[dict[str, Any]]) -> dict[str, Any]:
        self.forget()  # frees what was returned, so that every side allocates from warm memory
        prepared = [self._callee.prepare(call) for call in calls]
        times = [self._callee.run(arguments) for arguments in prepared]
        self._pending = list(zip(prepared, calls, strict=True))
        self._callee.finish(*self._pending.pop())
        return {"inside_ns": times, **self._callee.report()}

    def _closer(self, question: dict[str, Any]) -> dict[str, Any]:
        """What only callees on a GPU can tell (see `insight`)."""
        callee: Any = self._callee
        if question["op"] == "floor":
            return {"floor_ns": callee.floor_ns()}
        prepared = callee.prepare(question["call"])
        if question["op"] == "kernels":
            return {"kernels": callee.kernels(prepared)}
        return {"replay_ns": callee.replays_ns(prepared)}

    def _repeat(self, call: dict[str, Any], count: int) -> dict[str, Any]:
        """The call alone, without a clock where the callee knows how."""
        self.forget()
        prepared = self._callee.prepare(call)
        once: Any = getattr(self._callee, "repeat", None)
        if once is None:
            for _ in range(count):
                self._callee.run(prepared)
        else:
            once(prepared, count)
        return {}

    def _store(self) -> dict[str, Any]:
        for prepared, call in self._pending:
            self._callee.finish(prepared, call)
        self.forget()
        return {}

"""Answer the referee's questions about one callee. The same program serves candidate, parent and baseline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Callee(Protocol):
    """Define what can be called on buffers of the arena."""

    def set_case(self, case: dict[str, Any]) -> None:
        """Take the layout of the coming calls."""

    def prepare(self, call: dict[str, Any]) -> Any:
        """Return the arguments of one call, before the clock starts."""

    def run(self, prepared: Any) -> int:
        """Make one call; return its duration in nanoseconds by this process's clock."""

    def finish(self, prepared: Any, call: dict[str, Any]) -> None:
        """Bring the outputs of one call into the arena."""


class Caller:
    """Answer one question at a time.

    `ready` says how many calls come next. `case` sets the layout. `run` makes calls in order and returns their inside
    times; `store` brings the outputs of all but the last into the arena. A GPU has two more ways to make calls: `lay`
    prepares some, then `arm` enqueues one behind the gate and `reach` waits for it; `steady` makes them in a loop.
    The last call's outputs are always in the arena before that call is answered, so that work left to a thread shows
    as a wrong output.

    A callee that returns the same memory each time loses a call's outputs with the next one, as its user would. They
    are copied then: on a GPU outside the clock of single calls, before the next held call is enqueued, where neither
    clock runs, and inside the clock of a loop; on a CPU by the callee itself, inside its clock.
    """

    def __init__(self, callee: Callee) -> None:
        self._callee: Any = callee
        self._pending: list[tuple[Any, dict[str, Any]]] = []
        self._answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "ready": self._ready,
            "case": self._case,
            "run": lambda question: self._run(question["calls"]),
            "lay": lambda question: self._lay(question["calls"]),
            "arm": lambda question: self._arm(question["number"]),
            "reach": lambda question: self._reach(question["number"]),
            "steady": lambda question: self._steady(question["calls"], question["warm_ns"], question["repeats"]),
            "store": lambda question: self._store(),
            "release": lambda question: self._release(),
            "repeated": lambda question: self._repeat(question["call"], question["count"]),
            "floor": lambda question: {"floor_ns": self._callee.floor_ns()},
            "replay": lambda question: {"replay_ns": self._callee.replays_ns(self._alone(question["call"]))},
            "kernels": lambda question: {"kernels": self._callee.kernels(self._alone(question["call"]))},
        }

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Answer one question by its `op`. Raises whatever the callee raises."""
        return self._answers[question["op"]](question)

    def forget(self) -> None:
        """Release what calls returned."""
        self._pending.clear()

    def _ready(self, question: dict[str, Any]) -> dict[str, Any]:
        """Let the callee allocate memory for the calls that come next, if it allocates any."""
        self.forget()
        make_room: Any = getattr(self._callee, "make_room", None)
        if make_room is not None:
            make_room(question.get("calls", 0))
        return {"overwrites": getattr(self._callee, "overwrites", False)}

    def _case(self, question: dict[str, Any]) -> dict[str, Any]:
        self._callee.set_case(question["case"])
        return {}

    def _run(self, calls: list[dict[str, Any]]) -> dict[str, Any]:
        self._lay(calls)
        times = self._made()
        if self._overwritten():
            times = self._made()
        self._finish_last()
        return {"inside_ns": times}

    def _made(self) -> list[int]:
        """Make all pending calls, and return their times in ns."""
        times = []
        for number, (prepared, _) in enumerate(self._pending):
            times.append(self._callee.run(prepared))
            self._save(number)
        return times

    def _overwritten(self) -> bool:
        """Return whether calls have just overwritten the outputs of earlier ones, for the first time."""
        find: Any = getattr(self._callee, "finds_overwritten", None)
        return find is not None and find([prepared for prepared, _ in self._pending])

    def _save(self, number: int) -> None:
        """Copy the outputs of a pending call if the next one would overwrite them, and the callee has not."""
        save: Any = getattr(self._callee, "save", None)
        if save is not None and self._callee.overwrites and number < len(self._pending) - 1:
            save(self._pending[number][0])

    def _lay(self, calls: list[dict[str, Any]]) -> dict[str, Any]:
        self.forget()  # frees what was returned, so that every side allocates from memory that was used before
        self._pending = [(self._callee.prepare(call), call) for call in calls]
        return {}

    def _arm(self, number: int) -> dict[str, Any]:
        if number:
            self._save(number - 1)
        return {"enqueue_ns": self._callee.arm(self._pending[number][0])}

    def _reach(self, number: int) -> dict[str, Any]:
        reached = self._callee.reach()
        if number == len(self._pending) - 1:
            self._finish_last()
        return {"inside_ns": [reached.device_ns], "busy_ns": [reached.busy_ns]}

    def _steady(self, calls: list[dict[str, Any]], warm_ns: int, repeats: int) -> dict[str, Any]:
        self._lay(calls)
        prepared = [each for each, _ in self._pending]
        times = self._callee.steady(prepared, warm_ns, repeats)
        if self._overwritten():
            times = self._callee.steady(prepared, warm_ns, repeats)
        self._finish_last()
        return {"inside_ns": times}

    def _finish_last(self) -> None:
        self._callee.finish(*self._pending.pop())

    def _alone(self, call: dict[str, Any]) -> Any:
        self.forget()
        return self._callee.prepare(call)

    def _repeat(self, call: dict[str, Any], count: int) -> dict[str, Any]:
        """Repeat a call, without a clock if the callee knows how."""
        prepared = self._alone(call)
        once: Any = getattr(self._callee, "repeat", None)
        if once is None:
            for _ in range(count):
                self._callee.run(prepared)
        else:
            once(prepared, count)
        return {}

    def _release(self) -> dict[str, Any]:
        self.forget()
        return {"held_bytes": self._callee.release()}

    def _store(self) -> dict[str, Any]:
        for prepared, call in self._pending:
            self._callee.finish(prepared, call)
        self.forget()
        return {}

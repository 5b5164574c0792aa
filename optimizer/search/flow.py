"""Strategies written as straight code, replayed from the history at every decision.

A strategy that says *ask the selector, then the designer, then three writers* wants to be written in that order.
`Flow` lets it: each request carries a key; what is there already is returned at once, what is not becomes a step and
raises `Waiting`, which ends this replay. The next decision replays from the start with more history. Durable
execution in the small: nothing is kept between calls, so a crash at any point costs nothing.

The code must be deterministic given the history: randomness from `history.rng(key)` only, and decisions that
depend on a moment in time are stored in the context of the `Ask` they led to and read back from there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from optimizer.search.base import (
    Ask,
    CallView,
    Draft,
    Finish,
    History,
    Hypothesise,
    KernelView,
    Note,
    Step,
    Strategy,
)

T = TypeVar("T")


class Waiting(Exception):
    """Something that was asked for is not there yet."""


class Flow:
    """One replay: collects the steps that are missing."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.steps: list[Step] = []
        self._kernels = {kernel.key: kernel for kernel in history.kernels}
        self._free_slots = history.settings.concurrency - len(history.open_kernels())
        self._evaluations_left = history.evaluations_left

    def begin(
        self,
        key: str,
        role: str,
        answer_schema: str,
        context: Mapping[str, Any],
        temperature: float | None = None,
        model: str | None = None,
    ) -> CallView | None:
        """The finished call, or None after making sure that it has been asked."""
        call = self.history.calls.get(key)
        if call is None:
            self.steps.append(Ask(key, role, dict(context), answer_schema, temperature, model))
            return None
        return call if call.finished else None

    def ask(
        self,
        key: str,
        role: str,
        answer_schema: str,
        context: Mapping[str, Any],
        temperature: float | None = None,
        model: str | None = None,
    ) -> CallView:
        """The finished call. Its `answer` is None when the agents gave up on it. Raises Waiting."""
        call = self.begin(key, role, answer_schema, context, temperature, model)
        if call is None:
            raise Waiting(key)
        return call

    def evaluate(self, draft: Draft) -> KernelView:
        """The evaluated kernel. A draft waits for a free slot (`settings.concurrency`). Raises Waiting."""
        kernel = self._kernels.get(draft.key)
        if kernel is None and self._may_start():
            self.steps.append(draft)
        if kernel is None or not kernel.finished:
            raise Waiting(draft.key)
        return kernel

    def hypothesise(self, hypothesis: Hypothesise) -> None:
        """Put a hypothesis on record, once."""
        if hypothesis.key not in self.history.hypotheses:
            self.steps.append(hypothesis)

    def note(self, note: Note) -> None:
        """Write a note, once: its key names the call that produced it, which the loop keeps unique."""
        self.steps.append(note)

    def finish(self, reason: str) -> None:
        """Say that nothing more is to be gained."""
        self.steps.append(Finish(reason))

    def lanes(self, lanes: Iterable[Callable[[], T]]) -> list[T]:
        """Advance several lanes side by side and return their results in order. Raises Waiting when any waits."""
        results: list[T] = []
        waiting: Waiting | None = None
        for lane in lanes:
            try:
                results.append(lane())
            except Waiting as wait:
                waiting = wait
        if waiting is not None:
            raise waiting
        return results

    @property
    def out_of_budget(self) -> bool:
        """True when no further evaluation may be started."""
        return self._evaluations_left is not None and self._evaluations_left <= 0

    def _may_start(self) -> bool:
        if self._free_slots <= 0 or self.out_of_budget:
            return False
        self._free_slots -= 1
        if self._evaluations_left is not None:
            self._evaluations_left -= 1
        return True


class FlowStrategy(Strategy):
    """A strategy written as one straight flow."""

    @abstractmethod
    def play(self, flow: Flow) -> None:
        """The whole run from its beginning. Raises Waiting where it has to wait."""

    def decide(self, history: History) -> list[Step]:
        """Replay `play` and return the steps that are missing."""
        flow = Flow(history)
        with suppress(Waiting):
            self.play(flow)
        return flow.steps

"""Let a strategy be written as straight code that is replayed from the history at every decision.

A strategy that says "ask the selector, then the designer, then three writers" should be written in that order. Each
request to a `Flow` carries a key. If its result exists, it is returned at once; otherwise the request becomes a step
and raises `Waiting`, which ends this replay. The next decision replays from the start with more history. This is
durable execution in the small: nothing is kept between calls, so a crash at any point costs nothing.

The code must be deterministic given the history. It draws randomness only from `history.rng(key)`. A decision that
depends on a moment in time is stored in the context of the `Ask` that it led to, and read back from there.
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
    """Signal that a requested result does not exist yet."""


class Flow:
    """Replay a strategy once and collect the steps that are missing."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.steps: list[Step] = []
        self._kernels = {kernel.key: kernel for kernel in history.kernels}
        # Slots are counted per replay, so drafts of one decision cannot exceed them together.
        busy = [kernel for kernel in history.open_kernels() if kernel.author_kind != "tuner"]
        self._free_slots = history.settings.concurrency - len(busy)
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
        """Return the finished call, or None after making sure that it is requested."""
        call = self.history.calls.get(key)
        if call is None:
            # A recorded answer has the form that was asked for when it was recorded.
            recorded = self.history.recorded.get(key)
            schema = recorded.answer_schema if recorded else answer_schema
            self.steps.append(Ask(key, role, dict(context), schema, temperature, model))
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
        """Return the finished call. Its `answer` is None when the agents gave up. Raises Waiting."""
        call = self.begin(key, role, answer_schema, context, temperature, model)
        if call is None:
            raise Waiting(key)
        return call

    def evaluate(self, draft: Draft) -> KernelView:
        """Return the evaluated kernel. Raises Waiting.

        A draft waits for a free slot (`settings.concurrency`), except that of a tuner, who has a width of its own.
        """
        kernel = self._kernels.get(draft.key)
        # A draft without a free slot is not an error: the next replay asks for it again.
        if kernel is None and self._may_start(needs_slot=draft.author_kind != "tuner"):
            self.steps.append(draft)
        if kernel is None or not kernel.finished:
            raise Waiting(draft.key)
        return kernel

    def hypothesise(self, hypothesis: Hypothesise) -> None:
        """Record a hypothesis unless it is recorded already."""
        if hypothesis.key not in self.history.hypotheses:
            self.steps.append(hypothesis)

    def note(self, note: Note) -> None:
        """Write a note. Its key names the call that produced it, and the loop ignores repeated keys."""
        self.steps.append(note)

    def finish(self, reason: str) -> None:
        """Declare that nothing more is to be gained."""
        self.steps.append(Finish(reason))

    def lanes(self, lanes: Iterable[Callable[[], T]]) -> list[T]:
        """Advance several lanes side by side and return their results in order. Raises Waiting when any of them
        waits.
        """
        results: list[T] = []
        waiting: Waiting | None = None
        for lane in lanes:
            try:
                results.append(lane())
            # Let the other lanes record their missing steps first, so that all of them progress in parallel.
            except Waiting as wait:
                waiting = wait
        if waiting is not None:
            raise waiting
        return results

    def waits(self, lane: Callable[[], object]) -> bool:
        """Advance a lane and return whether it waits."""
        try:
            lane()
        except Waiting:
            return True
        return False

    @property
    def out_of_budget(self) -> bool:
        """Return True when no further evaluation may be started."""
        return not self.can_spare(0)

    def can_spare(self, reserved: int) -> bool:
        """Return whether an evaluation may be started beside `reserved` others that are still to come."""
        return self._evaluations_left is None or self._evaluations_left > reserved

    def has_kernel(self, key: str) -> bool:
        """Return whether the kernel exists or is requested by this decision."""
        return key in self._kernels or any(isinstance(step, Draft) and step.key == key for step in self.steps)

    def _may_start(self, *, needs_slot: bool) -> bool:
        if (needs_slot and self._free_slots <= 0) or self.out_of_budget:
            return False
        self._free_slots -= needs_slot
        if self._evaluations_left is not None:
            self._evaluations_left -= 1
        return True


class FlowStrategy(Strategy):
    """Provide the base class of strategies that are written as one straight flow."""

    @abstractmethod
    def play(self, flow: Flow) -> None:
        """Describe the whole run from its beginning. Raises Waiting where it has to wait."""

    def decide(self, history: History) -> list[Step]:
        """Replay `play` and return the steps that are missing."""
        flow = Flow(history)
        with suppress(Waiting):
            self.play(flow)
        return flow.steps

"""Represent a run as a program that follows its events sees it: old state + events = fresh state.

`snapshot_of` reads the rows, `apply` is pure. Comparing both catches an event that lacks a field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from optimizer.events import payloads as p
from optimizer.models import CallState, Evaluation, Kernel, LlmCall, Run


@dataclass(frozen=True)
class KernelRow:
    """Hold a row of the kernels table."""

    number: int
    title: str
    author_kind: str
    parents: tuple[int, ...] = ()
    state: str = "queued"
    status: str = ""
    verdict: str = ""
    time_us: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None


@dataclass(frozen=True)
class Snapshot:
    """Hold what is known after event `seq`."""

    seq: int
    state: str
    reason: str
    spent_evaluations: int
    spent_device_s: float
    spent_tokens: int
    spent_usd: float
    best: int | None = None
    best_speedup: float | None = None
    best_speedup_low: float | None = None
    best_speedup_high: float | None = None
    kernels: dict[int, KernelRow] = field(default_factory=dict)
    calls: dict[int, str] = field(default_factory=dict)


def snapshot_of(run: Run) -> Snapshot:
    """Read the snapshot from the rows. The caller's transaction determines the isolation."""
    # Three queries for all kernels and their parents, however many there are.
    kernels = run.kernels.select_related("evaluation").prefetch_related("parent_links__parent").order_by("number")
    return Snapshot(
        seq=run.last_seq,
        state=run.state,
        reason=run.stop_reason,
        spent_evaluations=run.spent_evaluations,
        spent_device_s=run.spent_device_s,
        spent_tokens=run.spent_tokens,
        spent_usd=float(run.spent_usd),
        best=run.best_kernel.number if run.best_kernel else None,
        best_speedup=run.best_speedup,
        best_speedup_low=run.best_speedup_low,
        best_speedup_high=run.best_speedup_high,
        kernels={kernel.number: _row(kernel) for kernel in kernels},
        calls={pk: _call_state(state) for pk, state in LlmCall.objects.filter(run=run).values_list("pk", "state")},
    )


def apply(snapshot: Snapshot, seq: int, payload: p.Payload) -> Snapshot:
    """Return the snapshot after one more event. Raises ValueError for a gap; applied events change nothing."""
    # After a reconnection, events may be delivered again.
    if seq <= snapshot.seq:
        return snapshot
    if seq != snapshot.seq + 1:
        # A gap cannot be repaired from events; the caller has to read a new snapshot.
        raise ValueError(f"event {seq} follows {snapshot.seq}: there is a gap")
    change = _CHANGES.get(type(payload))
    return replace(change(snapshot, payload) if change else snapshot, seq=seq)


def _call_state(state: str) -> str:
    """Reduce a call's state to open or its final state; only the call's own page shows the steps between."""
    return state if CallState(state).is_terminal else "open"


def _row(kernel: Kernel) -> KernelRow:
    evaluation: Evaluation | None = getattr(kernel, "evaluation", None)
    links = sorted(kernel.parent_links.all(), key=lambda link: link.rank)
    known = {} if evaluation is None else {name: getattr(evaluation, name) for name in ("state", *_OUTCOME)}
    return KernelRow(
        kernel.number, kernel.title, kernel.author_kind, tuple(link.parent.number for link in links), **known
    )


_OUTCOME = ("status", "verdict", "time_us", "speedup", "speedup_low", "speedup_high")


def _state(snapshot: Snapshot, event: p.RunStateChanged) -> Snapshot:
    return replace(snapshot, state=event.state, reason=event.reason)


def _added(snapshot: Snapshot, event: p.KernelAdded) -> Snapshot:
    return _with(snapshot, KernelRow(event.number, event.title, event.author_kind, tuple(event.parents)))


def _started(snapshot: Snapshot, event: p.EvaluationStarted) -> Snapshot:
    if not event.first:
        return snapshot
    return _with(snapshot, replace(snapshot.kernels[event.number], state="running"))


def _finished(snapshot: Snapshot, event: p.EvaluationFinished) -> Snapshot:
    spent = replace(snapshot, spent_evaluations=event.spent_evaluations, spent_device_s=event.spent_device_s)
    # The table shows first evaluations; confirmations change only what was spent.
    if not event.first:
        return spent
    outcome = {name: getattr(event, name) for name in _OUTCOME}
    return _with(spent, replace(snapshot.kernels[event.number], state="done", **outcome))


def _cancelled(snapshot: Snapshot, event: p.EvaluationCancelled) -> Snapshot:
    if not event.first:
        return snapshot
    return _with(snapshot, replace(snapshot.kernels[event.number], state="cancelled"))


def _best(snapshot: Snapshot, event: p.BestChanged) -> Snapshot:
    return replace(
        snapshot,
        best=event.number,
        best_speedup=event.speedup,
        best_speedup_low=event.speedup_low,
        best_speedup_high=event.speedup_high,
    )


def _refuted(snapshot: Snapshot, event: p.BestRefuted) -> Snapshot:
    if not event.led or snapshot.best != event.number:
        return snapshot
    return replace(snapshot, best=None, best_speedup=None, best_speedup_low=None, best_speedup_high=None)


def _asked(snapshot: Snapshot, event: p.CallAsked) -> Snapshot:
    return replace(snapshot, calls=snapshot.calls | {event.call: "open"})


def _call_ended(snapshot: Snapshot, event: p.CallEnded) -> Snapshot:
    return replace(
        snapshot,
        calls=snapshot.calls | {event.call: event.state},
        spent_tokens=event.spent_tokens,
        spent_usd=event.spent_usd,
    )


def _tool_called(snapshot: Snapshot, event: p.ToolCalled) -> Snapshot:
    return replace(snapshot, spent_tokens=event.spent_tokens, spent_usd=event.spent_usd)


def _tool_ended(snapshot: Snapshot, event: p.ToolEnded) -> Snapshot:
    return replace(snapshot, spent_device_s=event.spent_device_s)


def _with(snapshot: Snapshot, row: KernelRow) -> Snapshot:
    return replace(snapshot, kernels=snapshot.kernels | {row.number: row})


_CHANGES: dict[type[p.Payload], Callable[[Snapshot, Any], Snapshot]] = {
    p.RunStateChanged: _state,
    p.KernelAdded: _added,
    p.EvaluationStarted: _started,
    p.EvaluationFinished: _finished,
    p.EvaluationCancelled: _cancelled,
    p.BestChanged: _best,
    p.BestRefuted: _refuted,
    p.CallAsked: _asked,
    p.CallEnded: _call_ended,
    p.ToolCalled: _tool_called,
    p.ToolEnded: _tool_ended,
}

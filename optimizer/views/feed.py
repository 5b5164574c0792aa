"""Describe the events of a run as sentences. The page shows them in order; the wording is defined only here."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from optimizer.actions.thread import THREAD_WORDS
from optimizer.events import payloads
from optimizer.models import (
    CallState,
    EvaluationStatus,
    ReviewVerdict,
    Run,
    RunEvent,
    RunState,
    ThreadState,
    ToolState,
)

SHOWN = 60
# Filters of the feed; css/run.css defines which groups each shows.
TABS = (("", "All"), ("kernels", "Kernels"), ("agents", "Agents"), ("people", "People"), ("run", "Run"))
REPLAYED = 200


@dataclass(frozen=True)
class FeedItem:
    """Hold one line of the feed. `number` is the kernel it is about, if any; `group` is used by the filter."""

    seq: int
    at: dt.datetime
    group: str
    text: str
    tone: str = "muted"
    number: int | None = None


def latest_items(run: Run) -> list[FeedItem]:
    """Return the newest items, oldest first."""
    # Read from the newest end, where the index makes this cheap, and turned around for the page.
    return [_item(event) for event in run.events.order_by("-seq")[:SHOWN]][::-1]


def items_after(run: Run, after: int) -> list[FeedItem]:
    """Return the items after number `after`, oldest first, at most `REPLAYED`; continue with the last one."""
    return [_item(event) for event in run.events.filter(seq__gt=after).order_by("seq")[:REPLAYED]]


def _item(event: RunEvent) -> FeedItem:
    group, _, _ = event.type.partition(".")
    try:
        text, tone = _words(payloads.parse(event.type, event.payload))
    except (KeyError, ValidationError):  # written by an older or newer version: still an event
        text, tone = event.type, "muted"
    number = event.payload.get("number") if isinstance(event.payload, dict) else None
    return FeedItem(event.seq, event.created_at, group, text, tone, number if isinstance(number, int) else None)


def _words(payload: payloads.Payload) -> tuple[str, str]:
    return WORDING[type(payload)](payload)


def _state(event: payloads.RunStateChanged) -> tuple[str, str]:
    state = RunState(event.state)
    return f"{state.label}{': ' + event.reason if event.reason else ''}", state.tone


def _warned(event: payloads.BudgetWarned) -> tuple[str, str]:
    return f"{event.percent} % of the {event.kind} budget spent", "warn"


def _raised(event: payloads.BudgetRaised) -> tuple[str, str]:
    limits = ", ".join(f"{kind} {'unlimited' if limit is None else limit}" for kind, limit in event.limits.items())
    return f"Budget changed: {limits}", "live"


def _added(event: payloads.KernelAdded) -> tuple[str, str]:
    return f"written ({event.author_kind}) {event.title}".strip(), "muted"


def _started(event: payloads.EvaluationStarted) -> tuple[str, str]:
    again = f", attempt {event.attempt}" if event.attempt > 1 else ""
    return f"begun on {event.worker} ({event.effort}{again})", "live"


def _finished(event: payloads.EvaluationFinished) -> tuple[str, str]:
    status = EvaluationStatus(event.status)
    if status != EvaluationStatus.CORRECT:
        return f"{status.label.lower()}{': ' + event.reason if event.reason else ''}", status.tone
    times = f", {event.speedup:.2f}×" if event.speedup else ""
    return f"correct{times}{' – ' + event.verdict if event.verdict else ''}", _verdict_tone(event.verdict)


def _verdict_tone(verdict: str) -> str:
    return {"faster": "good", "slower": "bad"}.get(verdict, "muted")


def _best(event: payloads.BestChanged) -> tuple[str, str]:
    times = f" at {event.speedup:.2f}×{_interval(event)}" if event.speedup else ""
    confirmed = ", confirmed" if event.confirmed else ""
    if event.announce:
        return f"leads{times}{confirmed}", "good"
    return f"leads{times}{confirmed}, not shown to be faster than the baseline", "muted"


def _interval(event: payloads.BestChanged) -> str:
    if event.speedup_low is None or event.speedup_high is None:
        return ""
    return f" ({event.speedup_low:.2f}–{event.speedup_high:.2f})"


def _hypothesis(event: payloads.HypothesisAdded) -> tuple[str, str]:
    expected = (
        f" (expects {event.predicted_min:+.0f} to {event.predicted_max:+.0f} %)"
        if event.predicted_min is not None and event.predicted_max is not None
        else ""
    )
    return f"{event.kind.capitalize()}: {event.title}{expected}", "live" if event.chosen else "muted"


def _call_ended(event: payloads.CallEnded) -> tuple[str, str]:
    tokens = f", {event.tokens:,} tokens" if event.tokens else ""
    failed = f": {event.error}" if event.error else ""
    return f"{event.role}: {CallState(event.state).label.lower()}{tokens}{failed}", CallState(event.state).tone


def _compiled(event: payloads.AheadFinished) -> tuple[str, str]:
    return f"{event.compiled} compiled ahead, {event.refused or 'none'} ruled out by the compiler", "muted"


def _tool_ended(event: payloads.ToolEnded) -> tuple[str, str]:
    state = ToolState(event.state)
    said = event.headline or state.label.lower()
    return f"{event.role} {event.key}: {event.tool} – {said}", state.tone


def _reviewed(event: payloads.ReviewPublished) -> tuple[str, str]:
    verdict = ReviewVerdict(event.verdict)
    said = f"{event.comments} comment{'' if event.comments == 1 else 's'}"
    if verdict == ReviewVerdict.COMMENT:
        return f"{event.by}: {said}", "live"
    return f"{event.by}: {verdict.label.lower()}{', ' + said if event.comments else ''}", verdict.tone


WORDING: dict[type[payloads.Payload], Callable[[Any], tuple[str, str]]] = {
    payloads.RunStateChanged: _state,
    payloads.RunNoted: lambda event: (event.text, event.tone),
    payloads.BudgetWarned: _warned,
    payloads.BudgetRaised: _raised,
    payloads.AheadFinished: _compiled,
    payloads.KernelAdded: _added,
    payloads.EvaluationStarted: _started,
    payloads.EvaluationFinished: _finished,
    payloads.EvaluationCancelled: lambda event: ("cancelled", "muted"),
    payloads.BestChanged: _best,
    payloads.BestRefuted: lambda event: (
        f"{'no longer leads' if event.led else 'not confirmed'}: {event.reason}",
        "warn",
    ),
    payloads.HypothesisAdded: _hypothesis,
    payloads.HypothesisMeasured: lambda event: (f"Measured gain {event.gain:+.1f} %", _sign_tone(event.gain)),
    payloads.CallAsked: lambda event: (f"{event.role}: asking {event.model or event.provider}", "muted"),
    payloads.CallEnded: _call_ended,
    payloads.ToolCalled: lambda event: (f"{event.role} {event.key}: calls {event.tool}", "muted"),
    payloads.ToolEnded: _tool_ended,
    payloads.FindingAdded: lambda event: (f"Learnt: {event.text}", "live"),
    payloads.ReviewPublished: _reviewed,
    payloads.ThreadChanged: lambda event: (f"{event.by}: thread {THREAD_WORDS[ThreadState(event.state)]}", "muted"),
    payloads.CommentEdited: lambda event: (f"{event.by} edited a comment", "muted"),
    payloads.GuidanceGiven: lambda event: (f"Guidance by {event.by}: {event.text}", "live"),
    payloads.GuidanceWithdrawn: lambda event: (f"{event.by} withdrew guidance", "muted"),
}


def _sign_tone(gain: float) -> str:
    return "good" if gain > 0 else "bad" if gain < 0 else "muted"

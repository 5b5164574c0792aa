"""Read a run's questions to models with their durations, costs and totals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import groupby
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum

from optimizer.models import CallState, LlmCall

_FAILED = (CallState.FAILED, CallState.UNCERTAIN)
LONG = ("messages", "answer_text", "answer", "context_report", "context")


@dataclass(frozen=True)
class CallLine:
    """Hold a call with derived values. `seconds` is the time from request to answer, None without an answer."""

    call: LlmCall
    seconds: float | None

    @property
    def tone(self) -> str:
        """Return the colour token of the state."""
        return CallState(self.call.state).tone

    @property
    def is_recorded(self) -> bool:
        """Return whether the answer comes from a recorded run instead of a model."""
        return bool(self.call.transport.get("recorded"))

    @property
    def cost(self) -> str:
        """Return the cost in words: an unknown price is called unknown, and a recorded answer costs nothing."""
        if self.is_recorded:
            return "recorded"
        if self.call.cost_usd is not None:
            return f"${self.call.cost_usd:.4f}"
        return "unknown" if self.call.prompt_tokens is not None else "–"


@dataclass(frozen=True)
class Question:
    """Hold a question: its newest attempt, and the earlier ones, newest first."""

    line: CallLine
    earlier: list[CallLine]


@dataclass(frozen=True)
class CallRound:
    """Hold the questions of one round in the order in which they were asked, and what they took together."""

    name: str
    questions: list[Question]
    total: dict[str, Any]
    seconds: float


def round_of(key: str) -> str:
    """Return the round to which a question belongs, by the first part of its key: `r3.w2` is of round 3."""
    first, dot, _ = key.partition(".")
    return _round_named(first) if dot else "Start"


@lru_cache(maxsize=1024)  # a page sorts all calls of a run, several of each round
def _round_named(first: str) -> str:
    found = re.fullmatch(r"([a-z]+)(\d+)", first)
    names = {"r": "Round", "a": "Attempt"}
    return f"{names[found[1]]} {found[2]}" if found and found[1] in names else first


def by_rounds(keys: Iterable[tuple[int, str]]) -> list[int]:
    """Return the ids of calls, given as (id, key) in the order in which they were asked, newest round first."""
    rounds: dict[str, list[int]] = {}
    for pk, key in keys:
        rounds.setdefault(round_of(key), []).append(pk)
    return [pk for ids in reversed(rounds.values()) for pk in ids]


def call_rounds(calls: Sequence[LlmCall]) -> list[CallRound]:
    """Return the calls, which stand in the order of `by_rounds`, as rounds; the totals are of those given."""
    return [_call_round(name, list(members)) for name, members in groupby(calls, lambda call: round_of(call.key))]


def _call_round(name: str, calls: Sequence[LlmCall]) -> CallRound:
    """Return a round's questions with their attempts and totals; the calls are given in the order of their ids."""
    attempts: dict[str, list[CallLine]] = {}
    for call in calls:
        attempts.setdefault(call.key, []).insert(0, line_of(call))
    lines = [line for row in attempts.values() for line in row]
    answered = [line for line in lines if line.call.state == CallState.ANSWERED]
    total = {
        "count": len(lines),
        "retries": len(lines) - len(attempts),
        "failed": sum(row[0].call.state in _FAILED for row in attempts.values()),
        "prompt": sum(line.call.prompt_tokens or 0 for line in lines),
        "answer": sum(line.call.answer_tokens or 0 for line in lines),
        "usd": sum((line.call.cost_usd or Decimal(0) for line in lines), Decimal(0)),
        "all_recorded": bool(answered) and all(line.is_recorded for line in answered),
    }
    questions = [Question(row[0], row[1:]) for row in attempts.values()]
    return CallRound(name, questions, total, sum(line.seconds or 0.0 for line in lines))


def line_of(call: LlmCall) -> CallLine:
    """Return the call with its duration, by the provider's clock if it reports one, else from request to answer."""
    told = call.transport.get("duration_s")
    if told is None and call.asked_at and call.answered_at:
        told = (call.answered_at - call.asked_at).total_seconds()
    return CallLine(call, told)


def totals_of(calls: QuerySet[LlmCall]) -> dict[str, Any]:
    """Sum count, tokens and dollars, and count the recorded answers and those without a known price."""
    spent = Q(prompt_tokens__isnull=False)
    found = calls.aggregate(
        count=Count("pk"),
        prompt=Sum("prompt_tokens", default=0),
        answer=Sum("answer_tokens", default=0),
        usd=Sum("cost_usd", default=Decimal(0)),
        recorded=Count("pk", filter=Q(transport__recorded=True)),
        unpriced=Count("pk", filter=spent & Q(cost_usd=None)),
        uncertain=Count("pk", filter=Q(state=CallState.UNCERTAIN)),
    )
    return dict(found)

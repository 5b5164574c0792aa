"""Read a run's questions to models with their durations, costs and totals."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum

from optimizer.models import CallState, LlmCall

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
    def cost(self) -> str:
        """Return the cost in words: an unknown price is called unknown, and a recorded answer costs nothing."""
        if self.call.transport.get("recorded"):
            return "nothing: recorded"
        if self.call.cost_usd is not None:
            return f"${self.call.cost_usd:.4f}"
        return "unknown" if self.call.prompt_tokens is not None else "–"


def line_of(call: LlmCall) -> CallLine:
    """Return the call with its duration, by the provider's clock if it reports one, else from request to answer."""
    told = call.transport.get("duration_s")
    if told is None and call.asked_at and call.answered_at:
        told = (call.answered_at - call.asked_at).total_seconds()
    return CallLine(call, told)


def totals_of(calls: QuerySet[LlmCall]) -> dict[str, Any]:
    """Sum count, tokens and dollars, and count the answers without a known price."""
    spent = Q(prompt_tokens__isnull=False)
    found = calls.aggregate(
        count=Count("pk"),
        prompt=Sum("prompt_tokens", default=0),
        answer=Sum("answer_tokens", default=0),
        usd=Sum("cost_usd", default=Decimal(0)),
        unpriced=Count("pk", filter=spent & Q(cost_usd=None)),
        uncertain=Count("pk", filter=Q(state=CallState.UNCERTAIN)),
    )
    return dict(found)

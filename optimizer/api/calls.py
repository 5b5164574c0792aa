"""Serve every question that a run asked a model: what was sent, what came back, what it cost."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Query, Router, Schema

from optimizer.access import access_run
from optimizer.api.auth import caller, needs
from optimizer.api.paging import Page, Window, newest_first
from optimizer.models import CallTurn, LlmCall, TokenScope, ToolCall
from optimizer.queries.calls import LONG, line_of

TOLD = (
    "reasoning_tokens",
    "estimated",
    "price",
    "first_token_s",
    "finish",
    "fault",
    "dropped",
    "tries",
    "recorded",
)

router = Router(tags=["calls"], auth=needs(TokenScope.READ))


class CallLineOut(Schema):
    """Describe a call without its texts.

    `cost_usd` is null while the price is unknown. `seconds` is the time from request to answer, by the provider's
    clock if it reports one, and null without an answer.
    """

    id: int
    key: str
    attempt: int
    role: str
    provider: str
    model: str
    prompt_version: str
    state: str
    prompt_tokens: int | None
    answer_tokens: int | None
    cached_tokens: int | None
    cost_usd: float | None
    seconds: float | None
    error: str
    created_at: dt.datetime
    asked_at: dt.datetime | None
    answered_at: dt.datetime | None

    @staticmethod
    def resolve_seconds(call: LlmCall) -> float | None:
        """Return the duration as the page shows it."""
        return line_of(call).seconds


class ToolCallOut(Schema):
    """Describe a tool call: what was asked, and what the model read as its result."""

    number: int
    name: str
    arguments: dict[str, Any]
    source: str
    state: str
    headline: str
    result_text: str
    device_s: float
    created_at: dt.datetime
    finished_at: dt.datetime | None

    @staticmethod
    def resolve_headline(tool: ToolCall) -> str:
        """Return the outcome in a few words."""
        return str(tool.summary.get("headline", ""))


class TurnOut(Schema):
    """Describe an answer that called tools."""

    text: str
    prompt_tokens: int | None
    answer_tokens: int | None
    tool_calls: list[ToolCallOut]

    @staticmethod
    def resolve_tool_calls(turn: CallTurn) -> list[ToolCall]:
        """Return the tool calls in order."""
        return list(turn.tool_calls.all())


class CallOut(CallLineOut):
    """Describe a call completely, with the `turns` in which it called tools.

    Added are the prompt, the answer as it came (`answer_text`) and as it was parsed (`answer`), what the prompt's
    budget included (`context_report`), and the results: kernels by number, hypotheses and findings by id.
    """

    messages: list[dict[str, Any]]
    parameters: dict[str, Any]
    answer_schema: str
    context_report: dict[str, Any]
    transport: dict[str, Any]
    answer_text: str
    answer: Any
    answered_by: str | None
    kernels: list[int]
    hypotheses: list[int]
    findings: list[int]
    turns: list[TurnOut]

    @staticmethod
    def resolve_turns(call: LlmCall) -> list[CallTurn]:
        """Return the turns of this attempt in order."""
        return list(call.turns.prefetch_related("tool_calls").order_by("pk"))

    @staticmethod
    def resolve_transport(call: LlmCall) -> dict[str, Any]:
        """Return how the answer came, without the queue's internal bookkeeping."""
        return {name: call.transport[name] for name in TOLD if name in call.transport}

    @staticmethod
    def resolve_answered_by(call: LlmCall) -> str | None:
        """Return the account name of the person who answered, if one did."""
        return call.answered_by.get_username() if call.answered_by else None

    @staticmethod
    def resolve_kernels(call: LlmCall) -> list[int]:
        """Return the kernels' numbers in order."""
        return list(call.kernels.order_by("number").values_list("number", flat=True))

    @staticmethod
    def resolve_hypotheses(call: LlmCall) -> list[int]:
        """Return the hypotheses' ids in the order in which they were recorded."""
        return list(call.hypotheses.order_by("pk").values_list("pk", flat=True))

    @staticmethod
    def resolve_findings(call: LlmCall) -> list[int]:
        """Return the findings' ids in the order in which they were recorded."""
        return list(call.findings.order_by("pk").values_list("pk", flat=True))


@router.get("/{int:run_id}/calls", response=Page[CallLineOut])
def list_calls(request: HttpRequest, run_id: int, window: Query[Window], role: str = "") -> Any:
    """List calls, newest first, optionally of one `role`."""
    run = access_run(caller(request), run_id, "view")
    calls = LlmCall.objects.filter(run=run).defer(*LONG)
    return newest_first(calls.filter(role=role) if role else calls, window)


@router.get("/{int:run_id}/calls/{int:call_id}", response=CallOut)
def read_call(request: HttpRequest, run_id: int, call_id: int) -> Any:
    """Return one call completely."""
    run = access_run(caller(request), run_id, "view")
    return get_object_or_404(LlmCall.objects.select_related("answered_by"), run=run, pk=call_id)

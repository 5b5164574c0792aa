"""Show every question that a run asked: what was sent, what came back, what it cost, and what it produced."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import Count, Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from optimizer.access import access_run
from optimizer.models import CallState, LlmCall, Run
from optimizer.reports.files import as_attachment
from optimizer.views.signed_in import user_of

PER_PAGE = 50
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


@login_required
@require_safe
def calls(request: HttpRequest, run_id: int) -> HttpResponse:
    """List the run's calls, newest first; `?role=` selects one role."""
    run = access_run(user_of(request), run_id, "view")
    mine = LlmCall.objects.filter(run=run)
    roles = list(mine.order_by("role").values_list("role", flat=True).distinct())
    role = request.GET.get("role", "")
    shown = mine.filter(role=role) if role in roles else mine
    page = Paginator(shown.order_by("-pk").defer(*LONG), PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "run": run,
        "roles": roles,
        "role": role,
        "page": page,
        "lines": [line_of(call) for call in page],
        "total": totals_of(shown),
    }
    return render(request, "calls/list.html", context)


@login_required
@require_safe
def call_page(request: HttpRequest, run_id: int, call_id: int) -> HttpResponse:
    """Show one call completely."""
    run, call = _found(request, run_id, call_id)
    context = {
        "run": run,
        "line": line_of(call),
        "call": call,
        "attempts": LlmCall.objects.filter(run=run, key=call.key).order_by("attempt").defer(*LONG),
        "kernels": call.kernels.only("number", "title", "run").order_by("number"),
        "hypotheses": call.hypotheses.order_by("pk"),
        "findings": call.findings.order_by("pk"),
    }
    return render(request, "calls/page.html", context)


@login_required
@require_safe
def call_text(request: HttpRequest, run_id: int, call_id: int) -> HttpResponse:
    """Download prompt and answer as one file, uncut."""
    _, call = _found(request, run_id, call_id)
    # Old rows may lack a field.
    said = [(str(message.get("role", "")), str(message.get("content", ""))) for message in call.messages]
    text = "\n\n".join(f"## {who}\n\n{words}" for who, words in [*said, ("answer", call.answer_text)])
    return as_attachment(text, f"run{run_id}-call{call_id}.txt", "text/plain")


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


def _found(request: HttpRequest, run_id: int, call_id: int) -> tuple[Run, LlmCall]:
    """Return run and call. Raises Http404 for a run that the person may not see, and for a call of another run."""
    run = access_run(user_of(request), run_id, "view")
    calls = LlmCall.objects.select_related("answered_by")
    return run, get_object_or_404(calls, run=run, pk=call_id)

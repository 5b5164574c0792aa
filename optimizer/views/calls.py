"""Show every question that a run asked: what was sent, what came back, what it cost, and what it produced."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from optimizer.access import access_run
from optimizer.calls.transcript import transcript_of
from optimizer.models import LlmCall, Run
from optimizer.queries.calls import LONG, by_rounds, call_rounds, line_of, totals_of
from optimizer.queries.prompt_sections import sections_of
from optimizer.reports.files import as_attachment
from optimizer.views.signed_in import user_of

PER_PAGE = 100


@login_required
@require_safe
def calls(request: HttpRequest, run_id: int) -> HttpResponse:
    """Show the run's calls as a tree: rounds, newest first, their questions and attempts; `?role=` selects one role."""
    run = access_run(user_of(request), run_id, "view")
    mine = LlmCall.objects.filter(run=run)
    roles = list(mine.order_by("role").values_list("role", flat=True).distinct())
    role = request.GET.get("role", "")
    shown = mine.filter(role=role) if role in roles else mine
    ids = by_rounds(shown.order_by("pk").values_list("pk", "key"))
    page = Paginator(ids, PER_PAGE).get_page(request.GET.get("page"))
    rows = shown.defer(*LONG).in_bulk(list(page))
    context = {
        "run": run,
        "roles": roles,
        "role": role,
        "page": page,
        "rounds": call_rounds([rows[pk] for pk in page if pk in rows]),
        "total": totals_of(shown),
    }
    return render(request, "calls/list.html", context)


@login_required
@require_safe
def call_page(request: HttpRequest, run_id: int, call_id: int) -> HttpResponse:
    """Show one call completely."""
    run, call = _found(request, run_id, call_id)
    sections = sections_of(call)
    context = {
        "run": run,
        "line": line_of(call),
        "call": call,
        "attempts": LlmCall.objects.filter(run=run, key=call.key).order_by("attempt").defer(*LONG),
        "kernels": call.kernels.only("number", "title", "run").order_by("number"),
        "hypotheses": call.hypotheses.order_by("pk"),
        "findings": call.findings.order_by("pk"),
        "transcript": transcript_of(call),
        "sections": sections,
        "compared": any(one.added is not None or one.is_new for one in sections),
    }
    return render(request, "calls/page.html", context)


@login_required
@require_safe
def call_transcript(request: HttpRequest, run_id: int, call_id: int) -> HttpResponse:
    """Return the turns and tool calls alone. When nothing moves any more, reload the page, which has more to show."""
    _, call = _found(request, run_id, call_id)
    transcript = transcript_of(call)
    answer = render(request, "calls/_transcript.html", {"transcript": transcript})
    if not transcript.is_moving:
        answer["HX-Refresh"] = "true"
    return answer


@login_required
@require_safe
def call_text(request: HttpRequest, run_id: int, call_id: int) -> HttpResponse:
    """Download prompt and answer as one file, uncut."""
    _, call = _found(request, run_id, call_id)
    # Old rows may lack a field.
    said = [(str(message.get("role", "")), str(message.get("content", ""))) for message in call.messages]
    text = "\n\n".join(f"## {who}\n\n{words}" for who, words in [*said, ("answer", call.answer_text)])
    return as_attachment(text, f"run{run_id}-call{call_id}.txt", "text/plain")


def _found(request: HttpRequest, run_id: int, call_id: int) -> tuple[Run, LlmCall]:
    """Return run and call. Raises Http404 for a run that the person may not see, and for a call of another run."""
    run = access_run(user_of(request), run_id, "view")
    calls = LlmCall.objects.select_related("answered_by")
    return run, get_object_or_404(calls, run=run, pk=call_id)

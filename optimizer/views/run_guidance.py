"""Give instructions to the agents of a run from its page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

from optimizer.access import access_run, may
from optimizer.actions.guidance import MAX_CHARACTERS, do_give_guidance, do_withdraw_guidance
from optimizer.models import Guidance, Run, User
from optimizer.views.signed_in import user_of

SHOWN = 10


@dataclass(frozen=True)
class GivenGuidance:
    """Hold one instruction and the numbers of the kernels whose prompts contained it."""

    row: Guidance
    followers: list[int]


@login_required
@require_POST
def run_instruct(request: HttpRequest, run_id: int) -> HttpResponse:
    """Give an instruction for every later prompt of the run."""
    user = user_of(request)
    run = access_run(user, run_id, "comment")
    text = request.POST.get("text", "")
    try:
        do_give_guidance(user, run, text)
    except ValidationError as refusal:
        return _answer(request, run, user, {"fault": " ".join(refusal.messages), "text": text})
    return _answer(request, run, user, {})


@login_required
@require_POST
def run_withdraw(request: HttpRequest, run_id: int, guidance_id: int) -> HttpResponse:
    """Withdraw an instruction."""
    user = user_of(request)
    run = access_run(user, run_id, "comment")
    try:
        do_withdraw_guidance(user, get_object_or_404(Guidance, pk=guidance_id, run=run))
    except ValidationError as refusal:
        return _answer(request, run, user, {"fault": " ".join(refusal.messages)})
    return _answer(request, run, user, {})


def guidance_context(run: Run, user: User) -> dict[str, Any]:
    """Return what the page shows of guidance: the newest instructions, and whether the person may add one."""
    rows = run.guidance_notes.select_related("author", "kernel", "withdrawn_by").order_by("-pk")[:SHOWN]
    return {
        "run": run,
        "given": [
            GivenGuidance(row, list(row.followers().values_list("number", flat=True)[:SHOWN])) for row in rows
        ],
        "may_instruct": may(user, run, "comment"),
        "ended": run.state_choice.is_terminal,
        "longest": MAX_CHARACTERS,
    }


def _answer(request: HttpRequest, run: Run, user: User, more: dict[str, str]) -> HttpResponse:
    """Return the part alone where htmx asks for it, else redirect to the page."""
    if request.headers.get("HX-Request"):
        return render(request, "runs/_guidance.html", guidance_context(run, user) | more)
    if fault := more.get("fault"):
        messages.error(request, fault)
    return redirect("run_page", run_id=run.pk)

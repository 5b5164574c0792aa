"""Show what a run will send to its device, and why."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from optimizer.access import access_run
from optimizer.reports.plan import plan_words
from optimizer.runs.plan import plan_of
from optimizer.views.signed_in import user_of


@login_required
@require_safe
def run_plan(request: HttpRequest, run_id: int) -> HttpResponse:
    """Show the candidates in the order in which they are sent, with predicted time, gain and device time."""
    run = access_run(user_of(request), run_id, "view")
    plan = plan_of(run)
    return render(request, "runs/plan.html", {"run": run, "plan": plan, "words": plan_words(plan)})

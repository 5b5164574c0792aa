"""Show the first page: what this is, three ways in, and a checklist that disappears."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from optimizer.queries.getting_started import demo_run, first_steps
from optimizer.views.signed_in import user_of

DISMISSED = "getting-started"
YEAR_S = 365 * 24 * 3600


@login_required
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Show the first page until its checklist is done or dismissed; from then on, lead to the runs."""
    user = user_of(request)
    # `?show=1` is the way back to it, from the help page.
    is_asked_for = "show" in request.GET
    if request.COOKIES.get(DISMISSED) == "done" and not is_asked_for:
        return redirect("runs")
    steps = first_steps(user)
    if all(step.is_done for step in steps) and not is_asked_for:
        return redirect("runs")
    context = {"steps": steps, "done": sum(step.is_done for step in steps), "demo": demo_run(user)}
    return render(request, "home.html", context)


@login_required
@require_POST
def home_dismiss(request: HttpRequest) -> HttpResponse:
    """Hide the first page in this browser."""
    answer = redirect("runs")
    answer.set_cookie(DISMISSED, "done", max_age=YEAR_S, httponly=True, samesite="Lax", secure=request.is_secure())
    return answer

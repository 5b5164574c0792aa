"""Show releases, and request, make and withdraw them."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from optimizer.access import access_run, may
from optimizer.actions import release as actions
from optimizer.models import Evaluation, Kernel, Release, ReleaseState, Review
from optimizer.views.refusals import attempt
from optimizer.views.signed_in import user_of


@login_required
@require_safe
def releases(request: HttpRequest) -> HttpResponse:
    """List released kernels by problem and target, and those that wait for approval."""
    mine = Release.objects.visible_to(user_of(request)).with_kernel()
    released = mine.filter(state=ReleaseState.RELEASED).prefetch_related("approvals__author")
    rows = sorted(released, key=_place)
    context = {
        "places": [(place, [(row, _how(row)) for row in group]) for place, group in groupby(rows, key=_place)],
        "asked": mine.filter(state=ReleaseState.ASKED),
        "past": mine.filter(state__in=[state for state in ReleaseState if state.is_terminal])[:50],
    }
    return render(request, "releases/list.html", context)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def release_page(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """Show the state of a kernel's release; on POST, request it."""
    user = user_of(request)
    run = access_run(user, run_id, "comment" if request.method == "POST" else "view")
    kernel = get_object_or_404(Kernel.objects.select_related("run__team", "author"), run=run, number=number)
    if request.method == "POST":
        note = request.POST.get("note", "")
        said = "Release requested. The kernel is measured again, and the reviewers were notified."
        attempt(request, lambda: actions.do_ask_release(user, kernel, note), said)
        return redirect("release_page", run_id=run_id, number=number)
    return render(request, "releases/page.html", _context(request, kernel))


@login_required
@require_POST
def release_make(request: HttpRequest, release_id: int) -> HttpResponse:
    """Release the kernel."""
    row = _release(request, release_id, "operate")
    if attempt(request, lambda: actions.do_release(user_of(request), row)):
        messages.success(request, f"Released kernel #{row.kernel.number}.")
    return _back(row)


@login_required
@require_POST
def release_withdraw(request: HttpRequest, release_id: int) -> HttpResponse:
    """Withdraw the release."""
    row = _release(request, release_id, "comment")
    attempt(request, lambda: actions.do_withdraw_release(user_of(request), row), "Withdrawn.")
    return _back(row)


def _release(request: HttpRequest, release_id: int, verb: Any) -> Release:
    row = get_object_or_404(Release.objects.select_related("kernel__run__team"), pk=release_id)
    access_run(user_of(request), row.kernel.run_id, verb)
    return row


def _back(row: Release) -> HttpResponse:
    return redirect("release_page", run_id=row.kernel.run_id, number=row.kernel.number)


def _how(row: Release) -> list[str]:
    return actions.differences_of(row.kernel.evaluation, row.rerun)


def _place(row: Release) -> tuple[str, str]:
    run = row.kernel.run
    return run.problem_version.problem.title, run.target.title


def _context(request: HttpRequest, kernel: Kernel) -> dict[str, Any]:
    user = user_of(request)
    rows = list(Release.objects.filter(kernel=kernel).with_kernel())
    current = next((row for row in rows if not row.state_choice.is_terminal), None)
    first = Evaluation.objects.filter(first_of=kernel).select_related("job").first()
    conditions = actions.conditions_of(current) if current and current.state == ReleaseState.ASKED else []
    return {
        "run": kernel.run,
        "kernel": kernel,
        "release": current,
        "past": [row for row in rows if row is not current],
        "conditions": conditions,
        "is_ready": all(one.is_met for one in conditions),
        "standing": actions.standing_of(current, conditions) if current else None,
        "approvals": list(current.approvals.all()) if current and current.released_at else _standing(kernel),
        "first": first,
        "differences": actions.differences_of(first, current.rerun if current else None),
        "may_ask": current is None and may(user, kernel.run, "comment"),
        "may_release": may(user, kernel.run, "operate"),
        "may_withdraw": current and (may(user, kernel.run, "operate") or current.asked_by_id == user.pk),
        "counts": actions.may_approve(user, kernel),
    }


def _standing(kernel: Kernel) -> list[Review]:
    return actions.approvals_of(kernel)

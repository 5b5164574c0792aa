"""Starting a run."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from optimizer.access import access_run
from optimizer.actions.run import do_start_run
from optimizer.forms.start_run import StartRunForm, values_of
from optimizer.models import Run
from optimizer.search import STRATEGIES
from optimizer.views.signed_in import user_of


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def start_run(request: HttpRequest) -> HttpResponse:
    """The form, filled from the address or from the run that is cloned; on POST the start."""
    clone_of = _clone_of(request)
    form = StartRunForm(
        user_of(request), request.POST if request.method == "POST" else None, given=_given(request, clone_of),
        clone_of=clone_of,
    )  # fmt: skip
    if request.method == "POST" and form.is_valid() and (run := _start(form)):
        return redirect("run_page", run_id=run.pk)
    return render(request, "runs/start.html", _context(form))


@login_required
@require_safe
def start_run_settings(request: HttpRequest) -> HttpResponse:
    """The fields that depend on the strategy, alone."""
    form = StartRunForm(user_of(request), given=_given(request, None))
    return render(request, "runs/_strategy_settings.html", _context(form))


def _context(form: StartRunForm) -> dict[str, Any]:
    return {"form": form, "strategy": form.strategy_class, "strategies": STRATEGIES, "clone_of": form.clone_of}


def _start(form: StartRunForm) -> Run | None:
    """None where something changed between the check and the start; the form then says what."""
    try:
        return do_start_run(form.user, form.new_run())
    except ValidationError as refusal:
        form.add_error(None, refusal.messages)
        return None


def _clone_of(request: HttpRequest) -> Run | None:
    number = request.GET.get("clone", "")
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        return None
    return access_run(user_of(request), int(number), "view")


def _given(request: HttpRequest, clone_of: Run | None) -> dict[str, Any]:
    return (values_of(clone_of) if clone_of else {}) | request.GET.dict()

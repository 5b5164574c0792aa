"""Start a run: show the form, filled from the address, from a template or from a run to clone."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from optimizer.access import access_run
from optimizer.actions.run import do_start_run
from optimizer.actions.run_template import access_template, templates_of
from optimizer.forms.presets import PRESETS, preset_values
from optimizer.forms.start_run import StartRunForm, values_of
from optimizer.models import Run
from optimizer.search import STRATEGIES
from optimizer.text.whole_numbers import parse_whole_number
from optimizer.views.run_estimate import estimate_of
from optimizer.views.signed_in import user_of

# Maximum length of an address, in characters. Servers and chat programs truncate longer ones.
LONGEST_ADDRESS = 12_000
NOT_FIELDS = ("clone", "template", "preset", "csrfmiddlewaretoken", "template_name")


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def start_run(request: HttpRequest) -> HttpResponse:
    """Show the form; on POST, start the run."""
    form = posted_form(request) if request.method == "POST" else StartRunForm(user_of(request), **_origin(request))
    if request.method == "POST" and form.is_valid() and (run := _start(form)):
        return redirect("run_page", run_id=run.pk)
    return render(request, "runs/start.html", form_context(form))


@login_required
@require_POST
def start_run_link(request: HttpRequest) -> HttpResponse:
    """Redirect to the form under an address that holds all its fields, those of a chosen preset in their place."""
    form = posted_form(request)
    values = form.as_address() | ({"clone": str(form.clone_of.pk)} if form.clone_of else {})
    preset = dict(preset_values(request.POST.get("preset", "")))
    # A limit in dollars is refused where the price of a model is unknown.
    if not form.costs_money() and preset.pop("budget_usd", ""):
        messages.info(request, "No dollar limit was set: the price of the model is unknown.")
    values |= preset
    if len(urlencode(values)) > LONGEST_ADDRESS:
        values.pop("guidance", None)
        messages.warning(request, "The guidance is too long for a link and was not copied.")
    return redirect(f"{reverse('start_run')}?{urlencode(values)}")


def posted_form(request: HttpRequest) -> StartRunForm:
    """Return the form as it was sent."""
    return StartRunForm(user_of(request), request.POST, **_origin(request))


def form_context(form: StartRunForm) -> dict[str, Any]:
    """Return what the form's templates show."""
    return {
        "form": form,
        "strategy": form.strategy_class,
        "strategies": STRATEGIES,
        "presets": PRESETS,
        "clone_of": form.clone_of,
        "templates": templates_of(form.user),
        "estimate": estimate_of(form),
    }


def _start(form: StartRunForm) -> Run | None:
    """Start the run, or return None and add the error where something changed since the validation."""
    try:
        return do_start_run(form.user, form.new_run())
    except ValidationError as refusal:
        form.add_error(None, refusal.messages)
        return None


def _origin(request: HttpRequest) -> dict[str, Any]:
    """Return the form's initial values: the cloned run's, overridden by the template's, then by the address."""
    clone_of = _clone_of(request)
    values = values_of(clone_of) if clone_of else {}
    if (number := parse_whole_number(request.GET.get("template"))) is not None:
        values |= access_template(user_of(request), number).values
    address = {name: value for name, value in request.GET.dict().items() if name not in NOT_FIELDS}
    return {"given": values | address, "clone_of": clone_of}


def _clone_of(request: HttpRequest) -> Run | None:
    number = parse_whole_number(request.GET.get("clone"))
    return None if number is None else access_run(user_of(request), number, "view")

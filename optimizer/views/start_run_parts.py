"""Serve parts of the start form alone: strategy settings, estimate, provider test, and templates."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.views.decorators.http import require_POST, require_safe

from optimizer.actions.run_template import access_template, do_delete_template, do_save_template
from optimizer.calls.check import check_provider
from optimizer.forms.answering import DEFAULT, PREFIX, field_name
from optimizer.forms.start_run import StartRunForm
from optimizer.forms.strategy_settings import PREFIX as SETTINGS_PREFIX
from optimizer.models import Provider
from optimizer.models.provider import BUILT_IN
from optimizer.search import STRATEGIES
from optimizer.views.run_estimate import estimate_of
from optimizer.views.signed_in import user_of
from optimizer.views.start_run import form_context, posted_form

BUILT_IN_WORDS = {
    "inbox": "People and outside agents answer through the inbox; there is no server to ask.",
    "replay": "Answers come from the recording; there is no server to ask.",
    "": "Choose a provider first.",
}


@login_required
@require_safe
def start_run_settings(request: HttpRequest) -> HttpResponse:
    """Return the fields that depend on the strategy, and the limits; values of another strategy are dropped."""
    given = {
        name: value
        for name, value in request.GET.dict().items()
        if not name.startswith((PREFIX, SETTINGS_PREFIX)) and not _is_default(name, value)
    }
    context = form_context(StartRunForm(user_of(request), given=given)) | {"oob": True}
    parts = ("runs/_strategy_settings.html", "runs/_budget_fields.html")
    return HttpResponse("".join(render_to_string(part, context, request) for part in parts))


def _is_default(name: str, value: str) -> bool:
    """Return True for a limit that nobody chose: the new strategy's own takes its place."""
    evaluations = {str(one.default_evaluations) for one in STRATEGIES.values()}
    return (name == "budget_evaluations" and value in evaluations) or (name == "budget_usd" and not value)


@login_required
@require_safe
def start_run_estimate(request: HttpRequest) -> HttpResponse:
    """Return the estimate of the run and whether a runner would measure it."""
    form = StartRunForm(user_of(request), request.GET, given={})
    return render(request, "runs/_estimate.html", {"estimate": estimate_of(form), "oob": True})


@login_required
@require_POST
def start_run_check(request: HttpRequest) -> HttpResponse:
    """Ask the provider of a role for a sum, and return the result."""
    role = request.POST.get("check_role", DEFAULT)
    name = request.POST.get(field_name(role, "provider")) or request.POST.get("provider", "")
    model = request.POST.get(field_name(role, "model")) or request.POST.get("model", "")
    # A test spends the team's money, so it needs the same right as a run.
    usable = Provider.objects.usable_by(user_of(request)).enabled()
    row = usable.filter(team__slug=request.POST.get("team", ""), name=name).first()
    if row is not None:
        return render(
            request, "providers/_check.html", {"check": check_provider(row, model[:120]), "provider": row}
        )
    known = name in BUILT_IN or not name
    words = BUILT_IN_WORDS[name] if known else f"This team has no provider called {name[:60]}."
    return render(request, "runs/_check_words.html", {"words": words, "known": known})


@login_required
@require_POST
def template_save(request: HttpRequest) -> HttpResponse:
    """Save the form for the team under a name."""
    form = posted_form(request)
    team = form.sound("team")
    values = {name: text for name, text in form.as_address().items() if name != "team"}
    try:
        if team is None:
            raise ValidationError("Choose a team for the template.")
        row = do_save_template(form.user, team, request.POST.get("template_name", ""), values | {"team": team.slug})
    except ValidationError as refusal:
        context = form_context(form) | {"template_fault": " ".join(refusal.messages)}
        return render(request, "runs/start.html", context)
    messages.success(request, f"Saved template “{row.name}” for {row.team}.")
    return redirect(f"/runs/new/?template={row.pk}")


@login_required
@require_POST
def template_delete(request: HttpRequest, template_id: int) -> HttpResponse:
    """Delete a template."""
    row = access_template(user_of(request), template_id)
    do_delete_template(row)
    messages.success(request, f"Deleted template “{row.name}”.")
    return redirect("start_run")

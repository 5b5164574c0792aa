"""List, add, change, try and delete the model servers of a team."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from optimizer.actions.provider import do_delete_provider, do_save_provider, owned_provider, usable_provider
from optimizer.calls.check import check_provider
from optimizer.forms.provider import ProviderForm, owned_teams
from optimizer.llm.prices import listed as listed_prices
from optimizer.llm.prices import price_of
from optimizer.llm.servers import KNOWN_SERVERS, known_server
from optimizer.models import Provider, TeamRole
from optimizer.views.signed_in import user_of


@login_required
@require_safe
def providers(request: HttpRequest) -> HttpResponse:
    """List what the person's teams can ask, with the price of the default model where it is known."""
    user = user_of(request)
    listed = Provider.objects.usable_by(user).select_related("team").order_by("team__name", "name")
    rows = [
        (row, price_of(row.default_model, row.base_url, row.prices), user.role_in(row.team) == TeamRole.OWNER)
        for row in listed
    ]
    prices = [(host, model, price) for (host, model), price in listed_prices().items()]
    context = {"rows": rows, "may_add": owned_teams(user).exists(), "listed": prices}
    return render(request, "providers/list.html", context)


@sensitive_post_parameters("key")
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def provider_new(request: HttpRequest) -> HttpResponse:
    """Add a model server."""
    if not owned_teams(user_of(request)).exists():
        raise Http404("Only owners of the team manage its providers.")
    return _edit(request, None)


@sensitive_post_parameters("key")
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def provider_edit(request: HttpRequest, provider_id: int) -> HttpResponse:
    """Change a model server."""
    return _edit(request, owned_provider(user_of(request), provider_id))


@login_required
@require_POST
def provider_delete(request: HttpRequest, provider_id: int) -> HttpResponse:
    """Delete a model server and its key."""
    user = user_of(request)
    row = owned_provider(user, provider_id)
    do_delete_provider(user, row)
    messages.success(request, f"Deleted {row.name} and its key.")
    return redirect("providers")


@login_required
@require_POST
def provider_check(request: HttpRequest, provider_id: int) -> HttpResponse:
    """Ask the server for a sum and show the result."""
    row = usable_provider(user_of(request), provider_id)
    check = check_provider(row, request.POST.get("model", "")[:120])
    if request.headers.get("HX-Request"):
        return render(request, "providers/_check.html", {"check": check, "provider": row})
    (messages.success if check.answers else messages.error)(request, f"{row.name}: {check.summary}")
    return redirect("providers")


def _edit(request: HttpRequest, row: Provider | None) -> HttpResponse:
    user = user_of(request)
    known = known_server(request.GET.get("server", "")) if row is None else None
    form = ProviderForm(user, request.POST if request.method == "POST" else None, row=row, known=known)
    if request.method == "POST" and form.is_valid():
        saved = do_save_provider(user, form.cleaned_data["team"], form.entered, row)
        messages.success(request, f"Saved {saved.name}. Test it before you use it in a run.")
        return redirect("providers")
    context = {"form": form, "provider": row, "servers": KNOWN_SERVERS, "known": known}
    return render(request, "providers/form.html", context)

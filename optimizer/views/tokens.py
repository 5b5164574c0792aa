"""Manage a person's API tokens and the webhooks of the teams that they own.

Secrets are shown once, in the response to the POST that creates them. They are in no session, message or address.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from optimizer.actions.token import do_make_token, do_revoke_token
from optimizer.actions.webhook import do_delete_webhook, do_make_webhook, owned_webhook
from optimizer.models import ApiToken, Team, TeamRole, TokenScope, User, Webhook, WebhookDelivery, WebhookEvent
from optimizer.views.refusals import filled_in
from optimizer.views.signed_in import user_of

LASTS = (("30", "30 days"), ("90", "90 days"), ("365", "A year"), ("", "Until it is revoked"))
DELIVERIES = 30


class TokenForm(forms.Form):
    """Enter a token's name, scopes and lifetime."""

    name = forms.CharField(max_length=100, help_text="What will use it.")
    scopes = forms.MultipleChoiceField(
        choices=TokenScope.choices, widget=forms.CheckboxSelectMultiple, initial=[TokenScope.READ]
    )
    days = forms.ChoiceField(choices=LASTS, required=False, label="Lasts", initial="90")


class WebhookForm(forms.Form):
    """Enter a webhook's address and events."""

    team = forms.ModelChoiceField(Team.objects.none(), to_field_name="slug", empty_label=None)
    url = forms.CharField(
        label="Address", max_length=400, widget=forms.URLInput(attrs={"placeholder": "https://example.com/hook"})
    )
    events = forms.MultipleChoiceField(
        choices=WebhookEvent.choices, widget=forms.CheckboxSelectMultiple, initial=list(WebhookEvent.values)
    )
    allow_private = forms.BooleanField(required=False, label="Allow private network addresses")

    def __init__(self, user: User, data: Any = None) -> None:
        super().__init__(data)
        self.fields["team"].queryset = owned_teams(user)  # type: ignore[attr-defined]
        if not user.is_superuser:
            # Addresses in a private network could reach services behind the firewall, so only administrators may
            # allow them.
            del self.fields["allow_private"]


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def tokens(request: HttpRequest) -> HttpResponse:
    """List the person's tokens; on POST, create one and show its secret."""
    form = TokenForm(request.POST if request.method == "POST" else None)
    secret = make_token(user_of(request), form, user_of(request)) if request.method == "POST" else ""
    rows = ApiToken.objects.filter(user=user_of(request), revoked_at=None)
    # The secret exists only in this response, so the POST does not end in a redirect.
    context = {"form": TokenForm() if secret else form, "secret": secret, "tokens": rows, "now": timezone.now()}
    return render(request, "account/tokens.html", context)


@login_required
@require_POST
def token_revoke(request: HttpRequest, token_id: int) -> HttpResponse:
    """Revoke one of one's own tokens."""
    # Another person's token is not found, rather than forbidden, so that ids reveal nothing.
    row = get_object_or_404(ApiToken, pk=token_id, user=user_of(request))
    do_revoke_token(user_of(request), row)
    messages.success(request, f"Revoked {row}.")
    return redirect("tokens")


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def webhooks(request: HttpRequest) -> HttpResponse:
    """List the webhooks of the person's teams and the latest deliveries; on POST, create one."""
    user = user_of(request)
    form = WebhookForm(user, request.POST if request.method == "POST" else None)
    secret = _make_webhook(user, form) if request.method == "POST" else ""
    rows = Webhook.objects.filter(team__in=owned_teams(user)).select_related("team")
    latest = WebhookDelivery.objects.filter(webhook__in=rows).select_related("webhook", "run")
    context = {
        "form": WebhookForm(user) if secret else form,
        "secret": secret,
        "webhooks": rows,
        "deliveries": latest.defer("body")[:DELIVERIES],
        "owns_teams": owned_teams(user).exists(),
    }
    return render(request, "account/webhooks.html", context)


@login_required
@require_POST
def webhook_delete(request: HttpRequest, webhook_id: int) -> HttpResponse:
    """Delete a webhook."""
    row = owned_webhook(user_of(request), webhook_id)
    do_delete_webhook(user_of(request), row)
    messages.success(request, f"Removed {row}.")
    return redirect("webhooks")


def owned_teams(user: User) -> QuerySet[Team]:
    """Return the teams that the person owns."""
    if user.is_superuser:
        return Team.objects.order_by("name")
    return Team.objects.filter(memberships__user=user, memberships__role=TeamRole.OWNER).order_by("name")


def make_token(holder: User, form: TokenForm, by: User) -> str:
    """Create a token for the holder and return its secret, or "" where the form has errors."""

    def make() -> str:
        entered = form.cleaned_data
        ends = timezone.now() + dt.timedelta(days=int(entered["days"])) if entered["days"] else None
        return do_make_token(holder, entered["name"], entered["scopes"], ends, by=by)[1]

    return filled_in(form, make) or ""


def _make_webhook(user: User, form: WebhookForm) -> str:
    def make() -> str:
        entered = form.cleaned_data
        private = entered.get("allow_private", False)
        return do_make_webhook(user, entered["team"], entered["url"], entered["events"], allow_private=private)[1]

    return filled_in(form, make) or ""

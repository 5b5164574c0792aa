"""Manage webhooks of a team and list their deliveries. The secret is returned only when a webhook is created."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema, Status

from optimizer.access import access_team
from optimizer.actions.webhook import do_delete_webhook, do_make_webhook, owned_webhook
from optimizer.api.auth import caller, needs
from optimizer.api.body import Body
from optimizer.api.errors import Refusal
from optimizer.api.paging import Page, Window, newest_first
from optimizer.models import TeamRole, TokenScope, Webhook, WebhookDelivery

router = Router(tags=["webhooks"], auth=needs(TokenScope.WEBHOOKS))


class WebhookOut(Schema):
    """Describe a webhook."""

    id: int
    team: str
    url: str
    events: list[str]
    is_enabled: bool
    created_at: dt.datetime

    @staticmethod
    def resolve_team(row: Webhook) -> str:
        """Return the team's slug."""
        return row.team.slug


class WebhookMade(WebhookOut):
    """Describe a new webhook with its signing secret, which is returned only here."""

    secret: str


class WebhookIn(Body):
    """Describe a webhook to create. Only administrators may allow private addresses."""

    team: str
    url: str
    events: list[str] = Field(max_length=100)
    allow_private: bool = False


class DeliveryOut(Schema):
    """Describe one delivery."""

    id: int
    run_id: int
    seq: int
    event: str
    state: str
    attempts: int
    last_status: int | None
    last_error: str
    created_at: dt.datetime
    delivered_at: dt.datetime | None


@router.get("", response=list[WebhookOut])
def list_webhooks(request: HttpRequest) -> Any:
    """List the webhooks of the teams that the caller owns."""
    user = caller(request)
    rows = Webhook.objects.select_related("team")
    owned = {"team__memberships__user": user, "team__memberships__role": TeamRole.OWNER}
    return rows if user.is_superuser else rows.filter(**owned)


@router.post("", response={201: WebhookMade, 404: Refusal, 422: Refusal})
def make_webhook(request: HttpRequest, body: WebhookIn) -> Any:
    """Create a webhook."""
    team = access_team(caller(request), body.team, TeamRole.OWNER)
    row, secret = do_make_webhook(caller(request), team, body.url, body.events, allow_private=body.allow_private)
    shown = {name: getattr(row, name) for name in ("id", "team", "url", "events", "is_enabled", "created_at")}
    # The secret is no attribute of the row, so that no other response can contain it.
    return Status(201, SimpleNamespace(**shown, secret=secret))


@router.delete("/{int:webhook_id}", response={204: None})
def delete_webhook(request: HttpRequest, webhook_id: int) -> Any:
    """Delete a webhook."""
    do_delete_webhook(caller(request), owned_webhook(caller(request), webhook_id))
    return Status(204, None)


@router.get("/{int:webhook_id}/deliveries", response=Page[DeliveryOut])
def list_deliveries(request: HttpRequest, webhook_id: int, window: Query[Window]) -> Any:
    """List deliveries, newest first."""
    return newest_first(WebhookDelivery.objects.filter(webhook=owned_webhook(caller(request), webhook_id)), window)

"""Deliver events of a run to other programs: one row per delivery, sent until it arrives or is given up.

A delivery is a POST of JSON with the headers of Standard Webhooks (standardwebhooks.com): `webhook-id` (the same for
every attempt), `webhook-timestamp` (seconds since 1970) and `webhook-signature`. Receivers verify it with a library of
that standard, which refuses old timestamps too, and answer 2xx. Any other answer, or none, is retried with growing
pauses.
"""

from __future__ import annotations

import base64
import datetime as dt
import secrets
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F
from django.http import Http404
from django.utils import timezone
from standardwebhooks import Webhook as Signer

from optimizer.llm.addresses import ForbiddenAddressError, check_base_url, check_host
from optimizer.models import DeliveryState, Team, TeamRole, User, Webhook, WebhookDelivery, WebhookEvent
from optimizer.secrets import keys

MAX_WEBHOOKS = 20
LEASE = dt.timedelta(seconds=60)
# Pauses after the first attempt, the second, and so on; together about a day, then the delivery is given up.
PAUSES_S = (30, 120, 600, 3600, 4 * 3600, 12 * 3600)
SECRET_PREFIX = "whsec_"  # noqa: S105 - the standard's; it hides nothing
SECRET_BYTES = 32


def owned_webhook(user: User, webhook_id: int) -> Webhook:
    """Return a webhook whose team the person owns. Raises Http404."""
    row = Webhook.objects.select_related("team").filter(pk=webhook_id).first()
    if row is None or user.role_in(row.team) != TeamRole.OWNER:
        raise Http404("There is no such webhook.")
    return row


def check_webhook(user: User, team: Team, url: str, events: list[str], *, allow_private: bool) -> str:
    """Validate a webhook's fields and return its address. Raises ValidationError with the fields at fault."""
    faults: dict[str, str] = {}
    if user.role_in(team) != TeamRole.OWNER:
        faults["team"] = "Only owners of the team manage its webhooks."
    elif Webhook.objects.filter(team=team).count() >= MAX_WEBHOOKS:
        faults["team"] = f"A team has {MAX_WEBHOOKS} webhooks at most."
    if not events or not set(events) <= set(WebhookEvent.values):
        faults["events"] = f"One or more of {', '.join(WebhookEvent.values)}."
    try:
        if len(url) > 400:
            raise ForbiddenAddressError("an address has 400 characters at most")
        url = check_base_url(url)
        check_host(urlsplit(url).hostname or "", allow_private=allow_private and user.is_superuser)
    except ForbiddenAddressError as error:
        faults["url"] = f"{str(error)[:1].upper()}{str(error)[1:]}."
    if faults:
        raise ValidationError(faults)
    return url


def do_make_webhook(
    user: User, team: Team, url: str, events: list[str], *, allow_private: bool = False
) -> tuple[Webhook, str]:
    """Create a webhook. Return its row and its secret, which cannot be read again. Raises ValidationError.

    Only administrators may allow private addresses.
    """
    url = check_webhook(user, team, url, events, allow_private=allow_private)
    secret = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
    row = Webhook.objects.create(
        team=team, url=url, events=sorted(set(events)), secret_encrypted=keys.encrypt(secret), created_by=user,
        allow_private=allow_private and user.is_superuser,
    )  # fmt: skip
    return row, secret


def do_delete_webhook(user: User, row: Webhook) -> None:
    """Delete the webhook and its waiting deliveries. Raises ValidationError."""
    if user.role_in(row.team) != TeamRole.OWNER:
        raise ValidationError("Only owners of the team manage its webhooks.")
    row.delete()


def claim(delivery_id: int) -> WebhookDelivery | None:
    """Claim the delivery for sending, or return None where it was sent, is being sent, or is not due.

    When a sender is lost, the sweep picks the delivery up after the lease.
    """
    now = timezone.now()
    # `next_at` doubles as the lease: one conditional update claims the row and hides it from others.
    due = WebhookDelivery.objects.filter(pk=delivery_id, state=DeliveryState.WAITING, next_at__lte=now)
    if not due.update(next_at=now + LEASE, attempts=F("attempts") + 1):
        return None
    return WebhookDelivery.objects.select_related("webhook").get(pk=delivery_id)


def finish(row: WebhookDelivery, status: int | None, error: str) -> None:
    """Store the outcome of an attempt: delivered, to be retried, or given up."""
    row.last_status, row.last_error = status, error[:300]
    if status is not None and 200 <= status < 300:
        row.state, row.delivered_at = DeliveryState.DELIVERED, timezone.now()
    # One attempt per pause, after the first.
    elif row.attempts > len(PAUSES_S):
        row.state = DeliveryState.GIVEN_UP
    else:
        row.next_at = timezone.now() + dt.timedelta(seconds=PAUSES_S[row.attempts - 1])
    with transaction.atomic():
        row.save(update_fields=["state", "delivered_at", "next_at", "last_status", "last_error"])


def headers_for(row: WebhookDelivery, now: dt.datetime) -> dict[str, str]:
    """Return the headers of a delivery. Raises keys.UnreadableKeyError."""
    # The event's number would repeat across runs; the delivery's identifies the message for the receiver.
    message = f"msg_{row.pk}"
    return {
        "Content-Type": "application/json",
        "User-Agent": "KernelScientist",
        "webhook-id": message,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Signer(row.webhook.read_secret()).sign(message, now, row.body),
    }

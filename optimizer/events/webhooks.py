"""Create the webhook deliveries of an event."""

from __future__ import annotations

import json
from typing import Any

from django.utils import timezone

from optimizer.enqueue import enqueue_delivery
from optimizer.events.payloads import BestChanged, RunStateChanged
from optimizer.models import Run, RunEvent, RunState, Webhook, WebhookDelivery, WebhookEvent


def queue_deliveries(event: RunEvent) -> list[WebhookDelivery]:
    """Create a delivery for each subscribed webhook and enqueue it after commit. Most events have no subscribers.

    Events of private runs are not delivered: the team's owners may see such a run, other programs may not.
    """
    kind = _kind(event)
    # Other programs have no roles, so whoever reads the webhook's target would see a private run.
    if kind is None or event.run.is_private:
        return []
    hooks = Webhook.objects.filter(team=event.run.team_id, is_enabled=True, events__contains=[kind.value])
    rows = [
        WebhookDelivery(webhook=hook, run=event.run, seq=event.seq, event=kind.value, next_at=timezone.now(),
                        body=_body(event, kind))
        for hook in hooks
    ]  # fmt: skip
    made = WebhookDelivery.objects.bulk_create(rows)
    for row in made:
        enqueue_delivery(row.pk)
    return made


def _kind(event: RunEvent) -> WebhookEvent | None:
    if event.type == RunStateChanged.type and RunState(event.payload["state"]).is_terminal:
        return WebhookEvent.RUN_FINISHED
    if event.type == BestChanged.type and event.payload["announce"]:
        return WebhookEvent.NEW_BEST
    return None


def _body(event: RunEvent, kind: WebhookEvent) -> str:
    run: Run = event.run
    told: dict[str, Any] = {
        "event": kind.value,
        "run": run.pk,
        "seq": event.seq,
        "title": run.title,
        "problem": run.problem_version.problem.slug,
        "target": run.target.key,
        "strategy": run.strategy,
        "at": event.created_at.isoformat(),
        "payload": event.payload,
    }
    # Serialised once and stored: the signature covers exactly these bytes at every attempt.
    return json.dumps(told, sort_keys=True)

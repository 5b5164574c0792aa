"""Store the events of a run and pass them to the subscribers."""

from __future__ import annotations

from collections.abc import Callable

from optimizer.events.campaigns import wake_campaign
from optimizer.events.notices import notify_people
from optimizer.events.payloads import Payload
from optimizer.events.sockets import announce_event
from optimizer.events.webhooks import queue_deliveries
from optimizer.models import Run, RunEvent

# Called in this order for every event, inside its transaction. What leaves the process waits for the commit.
SUBSCRIBERS: tuple[Callable[[RunEvent], object], ...] = (
    queue_deliveries,
    notify_people,
    wake_campaign,
    announce_event,
)


def record(run: Run, payload: Payload) -> RunEvent:
    """Store an event and pass it to every subscriber. Call only while holding the run's row lock."""
    event = RunEvent.objects.create(
        run=run, seq=run.next_seq(), type=payload.type, payload=payload.model_dump(mode="json")
    )
    for subscriber in SUBSCRIBERS:
        subscriber(event)
    return event

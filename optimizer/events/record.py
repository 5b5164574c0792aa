"""Store the events of a run."""

from __future__ import annotations

from django.db import transaction

from optimizer.events.payloads import Payload
from optimizer.events.sockets import announce
from optimizer.models import Run, RunEvent


def record(run: Run, payload: Payload) -> RunEvent:
    """Store an event and announce it after commit. Call only while holding the run's row lock."""
    event = RunEvent.objects.create(
        run=run, seq=run.next_seq(), type=payload.type, payload=payload.model_dump(mode="json")
    )
    transaction.on_commit(lambda: announce(event.run_id, event.seq))
    return event

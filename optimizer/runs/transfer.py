"""Note in a run which earlier measurements its search starts from."""

from __future__ import annotations

from optimizer.events.payloads import RunNoted
from optimizer.events.record import record
from optimizer.models import Run

_STARTS = "The search starts from"


def note_transfer(run: Run, measurements: str) -> None:
    """Record once which measurements the search starts from; nothing where it starts from none."""
    text = f"{_STARTS} {measurements}."
    if measurements and text not in transfer_notes(run):
        record(run, RunNoted(text=text))


def transfer_notes(run: Run) -> list[str]:
    """Return what was noted, oldest first."""
    notes = run.events.filter(type=RunNoted.type, payload__text__startswith=_STARTS).order_by("pk")
    return list(notes.values_list("payload__text", flat=True))

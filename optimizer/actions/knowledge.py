"""Load the hardware notes that ship with the product into the database."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from django.db import transaction

from optimizer.models import Finding, Target

NOTES = Path(__file__).parent.parent / "agents" / "notes"


@dataclass(frozen=True)
class Note:
    """Hold one notes file. `targets` is the prefix of the target keys or architectures to which it applies."""

    key: str
    title: str
    targets: str
    source: str
    text: str


def do_sync_notes() -> list[Finding]:
    """Store every shipped note for every matching target, once per text. Call after `do_sync_targets`.

    A person's edit is kept: only the newest shipped text is superseded by a newer shipped one.
    """
    notes = [read_note(path) for path in sorted(NOTES.glob("*.md"))]
    return [_sync(note, target) for note in notes for target in _targets(note)]


def read_note(path: Path) -> Note:
    """Parse a notes file: lines `name: value`, a line `---`, then Markdown. Raises KeyError for a missing field."""
    head, _, text = path.read_text().partition("\n---\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    return Note(f"notes.{path.stem}", fields["title"], fields["targets"], fields["source"], text.strip())


def _targets(note: Note) -> list[Target]:
    return list(Target.objects.filter(key__startswith=note.targets).order_by("key"))


@transaction.atomic
def _sync(note: Note, target: Target) -> Finding:
    # Several processes start at once after an upgrade; the lock keeps them from storing the note twice.
    shipped = Finding.objects.select_for_update().filter(key=note.key, target=target, origin="shipped")
    newest = shipped.order_by("pk").last()
    if newest is not None and newest.text == note.text:
        return newest
    finding = Finding.objects.create(
        key=note.key, target=target, kind="hardware", title=note.title, text=note.text, origin="shipped",
        source=note.source[:400],
    )  # fmt: skip
    # A note that a person has edited is superseded already and keeps its edit.
    if newest is not None and newest.superseded_by_id is None:
        Finding.objects.filter(pk=newest.pk).update(superseded_by=finding)
    return finding

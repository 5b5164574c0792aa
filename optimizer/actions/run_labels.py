"""Label runs with tags and notes, and archive them.

Labels do not affect what a run does, so changing them takes no lock and records no event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from django.core.exceptions import ValidationError

from optimizer.access import may
from optimizer.actions.run import do_stop_run
from optimizer.models import Run, User
from optimizer.models.run import RunTransitionError
from optimizer.text.storable import storable_text

MAX_TAGS = 20
TAG_CHARS = 40
NOTES_CHARS = 20_000
Bulk = Literal["archive", "unarchive", "tag", "untag", "stop"]
BULK: tuple[str, ...] = get_args(Bulk)


def check_tags(text: str) -> list[str]:
    """Return the tags of a comma-separated text, without repetitions. Raises ValidationError."""
    cleaned = ("".join(c for c in storable_text(part) if c.isprintable()).strip() for part in text.split(","))
    tags = list(dict.fromkeys(tag for tag in cleaned if tag))
    if long := next((tag for tag in tags if len(tag) > TAG_CHARS), None):
        raise ValidationError(f"A tag has {TAG_CHARS} characters at most: {long[:TAG_CHARS]}…")
    if len(tags) > MAX_TAGS:
        raise ValidationError(f"A run has {MAX_TAGS} tags at most.")
    return tags


def do_label_run(run: Run, tags: Sequence[str], notes: str) -> None:
    """Replace tags and notes. Raises ValidationError for notes beyond the limit."""
    notes = storable_text(notes).strip()
    if len(notes) > NOTES_CHARS:
        raise ValidationError(f"Notes have {NOTES_CHARS:,} characters at most.")
    run.tags, run.notes = list(tags), notes
    run.save(update_fields=["tags", "notes"])


def do_tag_runs(runs: Iterable[Run], tags: Sequence[str], *, remove: bool = False) -> int:
    """Add tags to each run, or remove them, and return how many runs changed. A run at the limit keeps its tags."""
    changed = 0
    for run in runs:
        merged = [tag for tag in run.tags if tag not in tags] if remove else list(dict.fromkeys([*run.tags, *tags]))
        if merged != run.tags and len(merged) <= MAX_TAGS:
            # Update one column: saving the object would overwrite counters that the run has changed since.
            Run.objects.filter(pk=run.pk).update(tags=merged)
            changed += 1
    return changed


def do_archive_runs(runs: Iterable[Run], *, archived: bool) -> int:
    """Archive or unarchive the runs and return how many changed."""
    return Run.objects.filter(pk__in=[run.pk for run in runs], is_archived=not archived).update(
        is_archived=archived
    )


def do_stop_runs(user: User, runs: Iterable[Run]) -> int:
    """Stop the runs that are still live and return how many."""
    stopped = 0
    for run in runs:
        try:
            do_stop_run(user, run)
            stopped += 1
        except RunTransitionError:  # it has ended, or somebody was faster
            continue
    return stopped


def do_in_bulk(user: User, runs: Sequence[Run], verb: Bulk, tags: Sequence[str] = ()) -> int:
    """Apply one action to all of the runs and return how many changed.

    Raises ValidationError where tags are missing.
    """
    match verb:
        case "archive" | "unarchive":
            return do_archive_runs(runs, archived=verb == "archive")
        case "stop":
            return do_stop_runs(user, runs)
        case "tag" | "untag":
            if not tags:
                raise ValidationError("Enter a tag.")
            return do_tag_runs(runs, tags, remove=verb == "untag")


def operable(user: User, runs: Iterable[Run]) -> list[Run]:
    """Return those of the runs that the person may operate."""
    return [run for run in runs if may(user, run, "operate")]

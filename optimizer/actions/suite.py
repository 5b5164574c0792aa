"""Store suites. A suite that has changed becomes the next number under its name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.utils.text import slugify

from optimizer.models import ProblemVersion, Suite, SuiteEntry
from optimizer.text.storable import storable_text


@dataclass(frozen=True)
class NewEntry:
    """Hold one problem as it was read: its version, or why it cannot be used."""

    name: str
    version: ProblemVersion | None = None
    complaint: str = ""
    footprint_bytes: int | None = None


@dataclass(frozen=True)
class NewSuite:
    """Hold a suite as it was read from `origin`."""

    slug: str
    title: str
    origin: str
    version: str
    licence: str
    entries: Sequence[NewEntry]


def do_store_suite(new: NewSuite) -> tuple[Suite, bool]:
    """Return the suite with exactly these problems, and whether it is new."""
    digest = _digest(new)
    slug = slugify(new.slug)[:80] or "suite"
    with transaction.atomic():
        # Locked, so that two imports at once do not choose the same number.
        rows = list(Suite.objects.select_for_update().filter(slug=slug).order_by("-number"))
        known = next((row for row in rows if row.content_hash == digest), None)
        if known is not None:
            return known, False
        suite = Suite.objects.create(
            slug=slug,
            number=rows[0].number + 1 if rows else 1,
            title=storable_text(new.title)[:200],
            origin=storable_text(new.origin)[-300:],
            version=storable_text(new.version)[:80],
            licence=storable_text(new.licence)[:120],
            content_hash=digest,
        )
        SuiteEntry.objects.bulk_create(_row(suite, position, one) for position, one in enumerate(new.entries))
    return suite, True


def _row(suite: Suite, position: int, one: NewEntry) -> SuiteEntry:
    return SuiteEntry(
        suite=suite,
        position=position,
        name=storable_text(one.name)[:200],
        problem_version=one.version,
        complaint=storable_text(one.complaint)[:500],
        footprint_bytes=one.footprint_bytes,
    )


def _digest(new: NewSuite) -> str:
    told = [new.origin, new.version, new.licence]
    listed = [[one.name, one.version.pk if one.version else None, one.complaint] for one in new.entries]
    return hashlib.sha256(json.dumps([told, listed]).encode()).hexdigest()

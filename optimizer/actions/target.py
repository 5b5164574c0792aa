"""Targets of the database follow those that the runners know."""

from __future__ import annotations

from optimizer.models import Target
from runners.targets import TARGETS


def do_sync_targets() -> list[Target]:
    """One row for each target the runners know; rows of targets they have forgotten stay, for runs refer to them."""
    return [
        Target.objects.update_or_create(key=key, defaults={"title": facts.title[:120]})[0]
        for key, facts in TARGETS.items()
    ]

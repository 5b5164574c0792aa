"""Keep the targets of the database in step with those that the runners know."""

from __future__ import annotations

from optimizer.models import Target
from runners.targets import TARGETS


def do_sync_targets() -> list[Target]:
    """Store one row per target that the runners know. Rows of forgotten targets stay, because runs refer to them."""
    return [
        Target.objects.update_or_create(key=key, defaults={"title": facts.title[:120]})[0]
        for key, facts in TARGETS.items()
    ]

"""Prepare the tables and files that an installation needs before it serves.

Everything here may be repeated, and is repeated at every upgrade.
"""

from __future__ import annotations

from django.conf import settings

from kernelsci_site.collected import collect
from kernelsci_site.welcome import ensure_administrator
from optimizer.actions.demo import do_make_default_team
from optimizer.actions.knowledge import do_sync_notes
from optimizer.actions.leaders import do_rerank_leaders
from optimizer.actions.problem import do_sync_shipped_problems
from optimizer.actions.target import do_sync_targets
from optimizer.models import User


def collect_static_files() -> None:
    """Collect the static files of this version under hashed names."""
    collect(settings.STATIC_FOLDER, settings.STATIC_URL)


def fill_tables() -> tuple[User, str | None]:
    """Create or update administrator, default team, targets, notes and problems, and re-rank what older versions
    left.

    Returns the administrator, and the password if one was created now.
    """
    administrator, password = ensure_administrator()
    do_make_default_team()
    do_sync_targets()
    do_sync_notes()
    do_sync_shipped_problems()
    do_rerank_leaders()
    return administrator, password

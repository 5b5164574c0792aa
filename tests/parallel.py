"""Decide which tests stay in one of the processes that share a run.

pytest-xdist has a distribution by group, which writes the group into a test's name; pytest 9.2 lets nobody change
names. So the processes, which know the marks, write the groups down, and the one that distributes reads them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

FILE = "groups.json"


def write_groups(folder: Path, groups: Mapping[str, str]) -> None:
    """Say which test belongs to which group. All processes say the same, so the last word counts."""
    draft = folder / f"{FILE}.{os.getpid()}"
    draft.write_text(json.dumps(groups))
    draft.rename(folder / FILE)


class GroupScheduling(LoadScopeScheduling):
    """Hands out groups in the order of their first tests. A test without a group is one of its own."""

    folder: Path

    @cached_property
    def _groups(self) -> dict[str, str]:
        """Return the groups; every process has collected its tests before the first is handed out."""
        found: dict[str, str] = json.loads((self.folder / FILE).read_text())
        return found

    def _split_scope(self, nodeid: str) -> str:
        return self._groups.get(nodeid, nodeid)

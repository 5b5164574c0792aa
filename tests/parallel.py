"""Decide which tests stay in one of the processes that share a run.

pytest-xdist has a distribution by group, which writes the group into a test's name; pytest 9.2 lets nobody change
names. So the processes, which know the marks, write the groups down, and the one that distributes reads them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

FILE = "groups.json"
# The part of the others between which tests are spread, so that none of them is left for the end.
SPREAD_OVER = 0.8


def write_groups(folder: Path, groups: Mapping[str, str]) -> None:
    """Say which test belongs to which group. All processes say the same, so the last word counts."""
    draft = folder / f"{FILE}.{os.getpid()}"
    draft.write_text(json.dumps(groups))
    draft.rename(folder / FILE)


def spread(
    some: Sequence[pytest.Item], others: Sequence[pytest.Item], group_of: Callable[[pytest.Item], str]
) -> list[pytest.Item]:
    """Return all tests with the groups of `some` at equal distances between the groups of `others`.

    Evaluations wait half of their time, for builds and for each other's timings, and leave a core idle where they run
    beside their like. A test's neighbours of its group must be beside it in `some` and in `others`.
    """
    rare, common = ([list(members) for _, members in groupby(tests, group_of)] for tests in (some, others))
    places = [round(number * SPREAD_OVER * len(common) / max(1, len(rare))) for number in range(len(rare))]
    result: list[pytest.Item] = []
    for place, group in enumerate([*common, []]):
        for chosen in (one for one, at in zip(rare, places, strict=True) if at == place):
            result += chosen
        result += group
    return result


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

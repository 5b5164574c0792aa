"""Choose problems from a suite: by name, by number and seed, by footprint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from optimizer.models import Suite, SuiteEntry


@dataclass(frozen=True)
class Subset:
    """Describe a subset of a suite.

    `names` are names or patterns (`level1/*`, `*softmax*`); without any, all problems are meant. Of those, `count` are
    drawn with `seed`. Problems with a larger footprint than `most_bytes` are left out; one whose footprint is not known
    stays.
    """

    names: tuple[str, ...] = ()
    count: int | None = None
    seed: int = 0
    most_bytes: int | None = None


class UnknownNameError(ValueError):
    """Report a name or pattern that fits no problem of the suite."""


def newest_suites() -> list[Suite]:
    """Return the newest number of every suite, by name."""
    return list(Suite.objects.order_by("slug", "-number").distinct("slug"))


def chosen(suite: Suite, subset: Subset) -> list[SuiteEntry]:
    """Return the chosen entries in the suite's order. Raises UnknownNameError."""
    entries = list(suite.entries.select_related("problem_version__problem").defer("problem_version__bundle"))
    named = _named(entries, subset.names)
    fitting = [entry for entry in named if _fits(entry, subset.most_bytes)]
    return fitting if subset.count is None else _drawn(fitting, subset.count, subset.seed)


def _named(entries: Sequence[SuiteEntry], names: Sequence[str]) -> list[SuiteEntry]:
    if not names:
        return list(entries)
    for name in names:
        if not any(_is_called(entry, name) for entry in entries):
            raise UnknownNameError(f"No problem of this suite is called {name!r}.")
    return [entry for entry in entries if any(_is_called(entry, name) for name in names)]


def _is_called(entry: SuiteEntry, name: str) -> bool:
    own = entry.name.lower()
    return any(fnmatchcase(one, name.lower()) for one in (own, own.rpartition("/")[2], _slug(entry).lower()))


def _slug(entry: SuiteEntry) -> str:
    return entry.problem_version.problem.slug if entry.problem_version else ""


def _fits(entry: SuiteEntry, most_bytes: int | None) -> bool:
    return most_bytes is None or entry.footprint_bytes is None or entry.footprint_bytes <= most_bytes


def _drawn(entries: Iterable[SuiteEntry], count: int, seed: int) -> list[SuiteEntry]:
    """Draw among the usable entries: one that cannot be read would only make the subset smaller."""
    usable = [entry for entry in entries if entry.problem_version_id is not None]
    # Sorted first: the draw must not depend on the order in which a directory was read.
    by_name = sorted(usable, key=lambda entry: entry.name)
    picked = np.random.default_rng(seed).permutation(len(by_name))[:count]
    return sorted((by_name[index] for index in picked), key=lambda entry: entry.position)

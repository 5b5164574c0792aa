"""What may still be tried: the rows of a space that the history doesn't hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from optimizer.search.samplers.base import Trial
from optimizer.search.space import Rows, Space

_POOL = 50  # rows that compete to be a balanced start


def rows_of(space: Space, trials: Sequence[Trial]) -> Rows:
    """The trials' positions, shape (trials, parameters). Every configuration must be one of the space."""
    rows = [space.row(trial.config) for trial in trials]
    return np.array(rows, dtype=np.int32).reshape(len(trials), len(space.names))


def untried(space: Space, tried: Rows) -> Rows:
    """The space's rows less those tried."""
    return space.rows[~held(space.rows, tried)]


def drawn(rows: Rows, n: int, rng: np.random.Generator) -> Rows:
    """At most `n` of the rows, each equally likely."""
    return rows[rng.choice(len(rows), min(n, len(rows)), replace=False)]


def balanced(rows: Rows, seen: Rows, n: int, rng: np.random.Generator) -> Rows:
    """At most `n` of the rows, one after the other: of some at random the one whose values were seen least. Plain
    chance follows the constraints: it draws most from the values that most combinations allow, and may never see a
    value that few do."""
    chosen = seen[:0]
    for _ in range(min(n, len(rows))):
        some = drawn(rows[~held(rows, chosen)], _POOL, rng)
        chosen = np.vstack([chosen, some[_familiarity(some, np.vstack([seen, chosen])).argmin()][None]])
    return chosen


def _familiarity(rows: Rows, seen: Rows) -> NDArray[np.int64]:
    """How often the values of each row were seen, each in proportion to what is due to it."""
    times_seen = np.zeros(len(rows), dtype=np.int64)
    for column, values in enumerate(rows.T):
        length = int(max(values.max(initial=0), seen[:, column].max(initial=0))) + 1
        times_seen += length * np.bincount(seen[:, column], minlength=length)[values]
    return times_seen


def worth_scoring(space: Space, tried: Rows, around: Rows, most: int, rng: np.random.Generator) -> Rows:
    """The untried rows; where they are more than `most` or not listed whole, that many at random and the valid
    neighbours of `around` (one parameter changed), so that the search goes on where it is good."""
    rows = untried(space, tried)
    if space.complete and len(rows) <= most:
        return rows
    near = _neighbours(space, around) if len(around) else around
    rows = np.unique(np.vstack([drawn(rows, most, rng), near]), axis=0)
    return rows[~held(rows, tried)]


def _neighbours(space: Space, around: Rows) -> Rows:
    changed = []
    for column, parameter in enumerate(space.parameters):
        copies = np.repeat(around, len(parameter.values), axis=0)
        copies[:, column] = np.tile(np.arange(len(parameter.values)), len(around))
        changed.append(copies)
    rows = np.unique(np.vstack(changed), axis=0)
    return rows[space.keep(rows)]


def held(rows: Rows, others: Rows) -> NDArray[np.bool_]:
    """Which rows are among the others? Rows are compared as bytes."""
    if not len(others):
        return np.zeros(len(rows), dtype=bool)
    return np.isin(_as_bytes(rows), _as_bytes(others))


def _as_bytes(rows: Rows) -> NDArray[np.void]:
    return np.ascontiguousarray(rows).view(f"V{rows.itemsize * rows.shape[1]}").reshape(-1)

"""Select candidate configurations: rows of a space that the history does not contain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from optimizer.search.samplers.base import Trial
from optimizer.search.space import Rows, Space, rows_among

_POOL = 50  # random rows from which each balanced one is chosen


def rows_of(space: Space, trials: Sequence[Trial]) -> Rows:
    """Return the trials as positions of values, shape (trials, parameters). All must be configurations of the space."""
    rows = [space.row(trial.config) for trial in trials]
    return np.array(rows, dtype=np.int32).reshape(len(trials), len(space.names))


def untried(space: Space, tried: Rows) -> Rows:
    """Return the rows of the space that were not tried."""
    return space.rows[~rows_among(space.rows, tried)]


def draw_rows(rows: Rows, n: int, rng: np.random.Generator) -> Rows:
    """Draw at most `n` rows without replacement, each equally likely."""
    return rows[rng.choice(len(rows), min(n, len(rows)), replace=False)]


def draw_balanced(rows: Rows, seen: Rows, n: int, rng: np.random.Generator) -> Rows:
    """Draw at most `n` rows whose values cover the lists evenly.

    One after the other, this takes the row whose values were seen least among `_POOL` random ones. Plain random draws
    follow the constraints: they favour values that most combinations allow, and may miss a value that few allow.
    """
    chosen = seen[:0]
    for _ in range(min(n, len(rows))):
        some = draw_rows(rows[~rows_among(rows, chosen)], _POOL, rng)
        chosen = np.vstack([chosen, some[_times_seen(some, np.vstack([seen, chosen])).argmin()][None]])
    return chosen


def _times_seen(rows: Rows, seen: Rows) -> NDArray[np.int64]:
    """Score how often the values of each row were seen, weighting each parameter by the length of its value list."""
    times_seen = np.zeros(len(rows), dtype=np.int64)
    for column, values in enumerate(rows.T):
        # The weight `length` makes one occurrence in a list of eight count as much as four in a list of two.
        length = int(max(values.max(initial=0), seen[:, column].max(initial=0))) + 1
        times_seen += length * np.bincount(seen[:, column], minlength=length)[values]
    return times_seen


def candidate_rows(space: Space, tried: Rows, around: Rows, most: int, rng: np.random.Generator) -> Rows:
    """Return the untried rows that a model should score.

    Where there are more than `most`, or the space is not listed completely, these are `most` random rows and the
    valid neighbours of `around` (one parameter changed), so that the search can continue from good configurations.
    """
    rows = untried(space, tried)
    if space.complete and len(rows) <= most:
        return rows
    near = _neighbours(space, around) if len(around) else around
    # A neighbour may also be among the random rows.
    rows = np.unique(np.vstack([draw_rows(rows, most, rng), near]), axis=0)
    return rows[~rows_among(rows, tried)]


def _neighbours(space: Space, around: Rows) -> Rows:
    changed = []
    for column, parameter in enumerate(space.parameters):
        copies = np.repeat(around, len(parameter.values), axis=0)
        copies[:, column] = np.tile(np.arange(len(parameter.values)), len(around))
        changed.append(copies)
    # Each row appears among its own neighbours, once per parameter.
    rows = np.unique(np.vstack(changed), axis=0)
    return rows[space.keep(rows)]

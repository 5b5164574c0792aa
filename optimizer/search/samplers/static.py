"""Place configurations by what the compiler made of them: descriptors of their machine code, where they were built.

A table holds one row of descriptors for every configuration that was compiled ahead. The others lie where a regression
over the compiled ones expects them (see `guesses`), and one more column holds how uncertain that is. `covering` looks
them up once for all the questions about the same configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from optimizer.search.space import Key, Rows, Space
from runners.static_features.cost import DESCRIPTORS, descriptors, typical_programs

Floats = NDArray[np.float64]
COST = DESCRIPTORS.index("cost")


@dataclass(frozen=True)
class StaticTable:
    """Hold descriptors of configurations: `codes` are their numbers in the space, ascending, and `places` has shape
    (configurations, descriptors), each column in [0, 1]. `uncertain`, shape (configurations,), is 0 where they were
    compiled and the standard deviation of a guess elsewhere. Columns that do not vary are left out of `columns`.

    `guess` returns expected places and their standard deviations in [0, 1] for rows that are not in the table.
    """

    shape: tuple[int, ...]
    codes: NDArray[np.int64]
    places: Floats
    uncertain: Floats
    columns: tuple[int, ...]
    guess: Callable[[Rows], tuple[Floats, Floats]] | None = None

    @classmethod
    def of(cls, space: Space, features: Mapping[Key, Mapping[str, float]]) -> StaticTable | None:
        """Return the table of the configurations that have features, or None where fewer than two differ."""
        shape = tuple(len(parameter.values) for parameter in space.parameters)
        rows = {
            space.row(dict(zip(space.names, key, strict=True))): found for key, found in features.items() if found
        }
        programs = typical_programs(list(rows.values()))
        known = {row: list(descriptors(found, programs).values()) for row, found in rows.items() if row is not None}
        if len(known) < 2:
            return None
        codes = np.array([np.ravel_multi_index(row, shape) for row in known], dtype=np.int64)
        values, order = np.array(list(known.values())), np.argsort(codes)
        spans = np.ptp(values, axis=0)
        columns = tuple(int(column) for column in np.flatnonzero(spans > 1e-9))
        if not columns:
            return None
        places = (values - values.min(axis=0)) / np.maximum(spans, 1e-9)
        return cls(shape, codes[order], places[order], np.zeros(len(codes)), columns)

    def covering(self, rows: Rows) -> StaticTable:
        """Return the table with the guesses for `rows` stored, so that they are made once."""
        codes = np.unique(np.ravel_multi_index(tuple(rows.T), self.shape))
        codes = codes[~np.isin(codes, self.codes)]
        if not len(codes):
            return self
        guessed, uncertain = self._places(np.column_stack(np.unravel_index(codes, self.shape)).astype(np.int32))
        order = np.argsort(all_codes := np.append(self.codes, codes))
        places, uncertain = np.vstack([self.places, guessed]), np.append(self.uncertain, uncertain)
        return replace(self, codes=all_codes[order], places=places[order], uncertain=uncertain[order])

    @property
    def count(self) -> int:
        """Return the number of columns of `of`."""
        return len(self.columns) + 1

    def of_rows(self, rows: Rows) -> Floats:
        """Return the places of rows, shape (rows, count). The last column is 0 where the row was compiled."""
        places, uncertain = self._places(rows)
        return np.column_stack([places[:, list(self.columns)], uncertain])

    def cost(self, rows: Rows) -> Floats:
        """Return the estimated cost of rows, in [0, 1] where the row was compiled; more where it is a guess."""
        places, uncertain = self._places(rows)
        cost: Floats = places[:, COST] + uncertain
        return cost

    def _places(self, rows: Rows) -> tuple[Floats, Floats]:
        """Return the places of rows in all descriptors, and how uncertain each is, from 0 to 1."""
        at, known = self._find(rows)
        places = np.where(known[:, None], self.places[at], 0.5)
        uncertain = np.where(known, self.uncertain[at], 1.0)
        if self.guess is not None and not known.all():
            places[~known], uncertain[~known] = self.guess(rows[~known])
        return places, uncertain

    def _find(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        codes = np.ravel_multi_index(tuple(rows.T), self.shape)
        at = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        return at, self.codes[at] == codes

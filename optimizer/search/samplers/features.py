"""How far apart two configurations are, feature by feature.

A number is compared three ways, as tuning folk think of it: how many doublings lie between the values, how the
powers of two in them differ (a tile of 48 aligns like 16, not like 47), and whether they are the same at all. Words,
truths and two-valued parameters have the last only. A feature that says nothing new for its list of values is left
out, so that a list of powers of two is not counted twice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from optimizer.search.space import Rows, Space
from runners.job import TunableValue

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Feature:
    """Squared distances in [0, 1] between the values of one parameter; shape (values, values)."""

    parameter: int
    squared: Floats


@dataclass(frozen=True)
class Features:
    """The features of a space, and its parameters' list lengths."""

    each: tuple[Feature, ...]
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, space: Space) -> Features:
        """The features of every parameter that varies."""
        each = [
            Feature(number, squared)
            for number, parameter in enumerate(space.parameters)
            for squared in _distances(parameter.values)
        ]
        return cls(tuple(each), tuple(len(parameter.values) for parameter in space.parameters))

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """For each feature, which of the varying parameters it belongs to, counted from 0."""
        return np.unique([feature.parameter for feature in self.each], return_inverse=True)[1]

    @property
    def varying(self) -> int:
        """Number of parameters with more than one value."""
        return len(self.columns)

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """The parameters that vary, as positions in the space."""
        return tuple(sorted({feature.parameter for feature in self.each}))

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """Where each varying parameter's values stand among all their values."""
        ends = np.cumsum([self.lengths[column] for column in self.columns]).tolist()
        return tuple(slice(start, end) for start, end in itertools.pairwise([0, *ends]))

    def indicators(self, rows: Rows) -> Floats:
        """1.0 where a row has a value, of all values of the varying parameters; shape (rows, values)."""
        hits = [rows[:, column, None] == np.arange(self.lengths[column]) for column in self.columns]
        return np.hstack(hits).astype(float)

    def between(self, rows: Rows) -> Floats:
        """Squared distances among rows; shape (features, rows, rows)."""
        out = np.empty((len(self.each), len(rows), len(rows)))
        for number, feature in enumerate(self.each):
            column = rows[:, feature.parameter]
            out[number] = feature.squared[column[:, None], column]
        return out

    def tables(self, weights: Floats) -> list[Floats]:
        """For each varying parameter, the weighted squared distances between its values."""
        tables = [np.zeros(()) for _ in range(self.varying)]
        for owner, weight, feature in zip(self.owners, weights, self.each, strict=True):
            tables[owner] = tables[owner] + weight * feature.squared
        return tables

    def total(self, tables: Sequence[Floats], rows: Rows, others: Rows) -> NDArray[np.float32]:
        """The sum over the varying parameters of `table[value of row, value of other]`; shape (rows, others)."""
        out = np.zeros((len(rows), len(others)), dtype=np.float32)
        for table, column in zip(tables, self.columns, strict=True):
            out += table.astype(np.float32)[:, others[:, column]][rows[:, column]]
        return out


def _distances(values: Sequence[TunableValue]) -> Iterator[Floats]:
    """The squared distances of one parameter: of its scales, without repetition, and same-or-not."""
    if len(values) < 2:
        return
    seen: list[Floats] = []
    for scale in _scales(values):
        squared = (scale[:, None] - scale) ** 2 / max(float(np.ptp(scale)) ** 2, 1e-12)
        if np.ptp(scale) > 0 and not any(np.allclose(squared, other) for other in seen):
            seen.append(squared)
    yield from seen
    yield 1.0 - np.eye(len(values))


def _scales(values: Sequence[TunableValue]) -> list[Floats]:
    """Doublings and power of two of each value, for finite numbers of which there are more than two."""
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < len(values) or len(values) == 2 or not all(map(math.isfinite, numbers)):
        return []
    shift = 0.0 if min(numbers) > 0 else 1.0 - min(numbers)
    scales = [np.log2(np.array(numbers) + shift)]
    if all(number.is_integer() for number in numbers):
        scales.append(_powers([int(number) for number in numbers]))
    return scales


def _powers(numbers: Sequence[int]) -> Floats:
    """The exponent of two in each number; zero, which every power divides, counts one above the largest."""
    exponents = [math.log2(number & -number) if number else None for number in numbers]
    top = max((e for e in exponents if e is not None), default=0.0) + 1.0
    return np.array([top if e is None else e for e in exponents])

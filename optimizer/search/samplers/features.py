"""How far apart two configurations are, feature by feature.

A number is compared three ways, as tuning folk think of it: how many doublings lie between the values, how the
powers of two in them differ (a tile of 48 aligns like 16, not like 47), and whether they are the same at all. Words,
truths and two-valued parameters have the last only. A feature that says nothing new for its list of values is left
out, so that a list of powers of two is not counted twice.

Two sizes are also compared by their product, in doublings: threads of a block, elements of a tile, bytes of a buffer
are products, and what they run into is a limit on them, whichever factor grew.
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


MOST_PRODUCTS = 45
"""In spaces with more pairs of sizes, products are left out: a fit takes time that grows with the features."""
_SIZE_RANGE = 4  # a parameter that grows at least so much is a size


@dataclass(frozen=True)
class Feature:
    """Squared distances in [0, 1] between the values of one parameter; shape (values, values)."""

    parameter: int
    squared: Floats


@dataclass(frozen=True)
class Product:
    """Where a row stands in the product of two parameters: the sum of its values' `places`, in [0, 1]."""

    parameters: tuple[int, int]
    places: tuple[Floats, Floats]

    def of(self, rows: Rows) -> Floats:
        """Shape (rows,)."""
        first, second = self.parameters
        place: Floats = self.places[0][rows[:, first]] + self.places[1][rows[:, second]]
        return place


@dataclass(frozen=True)
class Features:
    """The features of a space, and its parameters' list lengths. Weights stand in the order of `each`, then of
    `products`."""

    each: tuple[Feature, ...]
    lengths: tuple[int, ...]
    products: tuple[Product, ...] = ()

    @classmethod
    def of(cls, space: Space) -> Features:
        """The features of every parameter that varies."""
        each = [
            Feature(number, squared)
            for number, parameter in enumerate(space.parameters)
            for squared in _distances(parameter.values)
        ]
        lengths = tuple(len(parameter.values) for parameter in space.parameters)
        return cls(tuple(each), lengths, tuple(_products(space)))

    @property
    def count(self) -> int:
        """Number of weights."""
        return len(self.each) + len(self.products)

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
        """Squared distances among rows; shape (weights, rows, rows)."""
        out = np.empty((self.count, len(rows), len(rows)))
        for number, feature in enumerate(self.each):
            column = rows[:, feature.parameter]
            out[number] = feature.squared[column[:, None], column]
        for number, product in enumerate(self.products, len(self.each)):
            place = product.of(rows)
            out[number] = (place[:, None] - place) ** 2
        return out

    def apart(self, weights: Floats, rows: Rows, others: Rows) -> NDArray[np.float32]:
        """The weighted squared distances of the products alone; shape (rows, others)."""
        if not self.products:
            return np.zeros((len(rows), len(others)), dtype=np.float32)
        scale = np.sqrt(weights[len(self.each) :])
        left, right = (self._places(which, scale) for which in (rows, others))
        squares: NDArray[np.float32] = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)
        squares -= np.float32(2.0) * left @ right.T
        return squares.clip(min=0.0)

    def _places(self, rows: Rows, scale: Floats) -> NDArray[np.float32]:
        places = np.column_stack([product.of(rows) for product in self.products])
        return (places * scale).astype(np.float32)

    def tables(self, weights: Floats) -> list[Floats]:
        """For each varying parameter, the weighted squared distances between its values."""
        tables = [np.zeros(()) for _ in range(self.varying)]
        for owner, weight, feature in zip(self.owners, weights[: len(self.each)], self.each, strict=True):
            tables[owner] = tables[owner] + weight * feature.squared
        return tables

    def total(self, tables: Sequence[Floats], rows: Rows, others: Rows) -> NDArray[np.float32]:
        """The sum over the varying parameters of `table[value of row, value of other]`; shape (rows, others)."""
        out = np.zeros((len(rows), len(others)), dtype=np.float32)
        for table, column in zip(tables, self.columns, strict=True):
            out += table.astype(np.float32)[:, others[:, column]][rows[:, column]]
        return out


def _products(space: Space) -> list[Product]:
    """Of every two parameters that are sizes; none where those are too many."""
    sizes = [(number, np.log2(found)) for number, p in enumerate(space.parameters) if (found := _sizes(p.values))]
    pairs = list(itertools.combinations(sizes, 2))
    return [_product(*pair) for pair in pairs] if len(pairs) <= MOST_PRODUCTS else []


def _product(one: tuple[int, Floats], other: tuple[int, Floats]) -> Product:
    span = np.ptp(one[1]) + np.ptp(other[1])
    places = ((one[1] - one[1].min()) / span, (other[1] - other[1].min()) / span)
    return Product((one[0], other[0]), places)


def _sizes(values: Sequence[TunableValue]) -> list[float]:
    """The values as numbers, where they are sizes; else nothing."""
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < max(3, len(values)) or not all(math.isfinite(number) and number > 0 for number in numbers):
        return []
    return numbers if max(numbers) >= _SIZE_RANGE * min(numbers) else []


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

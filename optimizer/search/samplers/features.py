"""Measure the distance between configurations, feature by feature.

Numbers are compared in four ways that matter for tuning: the number of doublings between two values; the difference
of their powers of two (a tile of 48 aligns like 16, not like 47); whether they are equal; and whether both or neither
are powers of two, which divide images, caches and memory banks without remainder. Strings, booleans and two-valued
parameters have only the third feature. A feature that adds nothing for a given list of values is left out, so that a
list of powers of two is not counted twice.

Two sizes are also compared by their product, in doublings: threads per block, elements per tile and bytes per buffer
are products, and hardware limits apply to the product whichever factor grew.

Configurations that were compiled ahead are also compared by descriptors of their machine code (see `static`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from optimizer.search.samplers.static import StaticTable
from optimizer.search.space import Rows, Space
from runners.job import TunableValue

Floats = NDArray[np.float64]


_WEIGHT = 0.3  # of a parameter's features together
_WHOLE_WEIGHT = 0.02  # of being a power of two: nothing, until the data say more
_STATIC_WEIGHT = 0.5  # of each descriptor of the machine code
_PRODUCTS_WEIGHT = 0.5  # of all products together: one tells less than its factors, until the data say more
# Products are left out of spaces with more pairs of sizes, as the time of a fit grows with the features.
MOST_PRODUCTS = 45
_SIZE_RANGE = 4  # a parameter that grows at least so much is a size


@dataclass(frozen=True)
class Feature:
    """Hold squared distances in [0, 1] between the values of one parameter, shape (values, values).

    `expected` is the feature's weight in the prior.
    """

    parameter: int
    squared: Floats
    expected: float


@dataclass(frozen=True)
class Product:
    """Hold the position of a row in the product of two parameters: the sum of its values' `places`, in [0, 1]."""

    parameters: tuple[int, int]
    places: tuple[Floats, Floats]

    def of(self, rows: Rows) -> Floats:
        """Return the positions of the rows, shape (rows,)."""
        first, second = self.parameters
        place: Floats = self.places[0][rows[:, first]] + self.places[1][rows[:, second]]
        return place


@dataclass(frozen=True)
class Features:
    """Hold the features of a space. Weights are in the order of `each`, then of `products`, then of `static`."""

    each: tuple[Feature, ...]
    products: tuple[Product, ...] = ()
    static: StaticTable | None = None

    @classmethod
    def of(cls, space: Space, static: StaticTable | None = None) -> Features:
        """Build the features of every parameter that has more than one value, and of what was compiled ahead."""
        each = [feature for number, one in enumerate(space.parameters) for feature in _features(number, one.values)]
        return cls(tuple(each), tuple(_products(space)), static)

    @property
    def count(self) -> int:
        """Return the number of weights."""
        return len(self.each) + len(self.products) + (self.static.count if self.static else 0)

    @cached_property
    def expected(self) -> Floats:
        """Return the prior weights, shape (weights,)."""
        of_each = _PRODUCTS_WEIGHT / max(len(self.products), 1)
        of_static = [_STATIC_WEIGHT] * (self.static.count if self.static else 0)
        of_products = [of_each for _ in self.products]
        return np.array([*(feature.expected for feature in self.each), *of_products, *of_static])

    def between(self, rows: Rows) -> Floats:
        """Return the squared distances among rows, shape (weights, rows, rows)."""
        out = np.empty((self.count, len(rows), len(rows)))
        for number, feature in enumerate(self.each):
            column = rows[:, feature.parameter]
            out[number] = feature.squared[column[:, None], column]
        for number, place in enumerate(self._placed(rows).T, len(self.each)):
            out[number] = (place[:, None] - place) ** 2
        return out

    def _placed(self, rows: Rows) -> Floats:
        """Return the positions of rows in all products and descriptors, shape (rows, weights after `each`)."""
        places = [product.of(rows)[:, None] for product in self.products]
        return np.hstack([np.zeros((len(rows), 0)), *places, *([self.static.of_rows(rows)] if self.static else [])])

    def weighted_distances(self, weights: Floats, rows: Rows, others: Rows) -> NDArray[np.float32]:
        """Return the weighted squared distances, shape (rows, others).

        Single precision saves memory, as there may be hundreds of thousands of rows.
        """
        out = self._by_places(weights[len(self.each) :], rows, others)
        # Values are positions in short lists, so distances are looked up in small tables instead of being computed
        # per row.
        for column, table in self._tables(weights).items():
            out += table.astype(np.float32)[:, others[:, column]][rows[:, column]]
        return out

    def _tables(self, weights: Floats) -> dict[int, Floats]:
        """Return the weighted squared distances between the values of each parameter that varies."""
        tables: dict[int, Floats] = {}
        for weight, one in zip(weights, self.each, strict=False):
            tables[one.parameter] = tables.get(one.parameter, 0.0) + weight * one.squared
        return tables

    def _by_places(self, weights: Floats, rows: Rows, others: Rows) -> NDArray[np.float32]:
        scale = np.sqrt(weights)
        left, right = ((self._placed(which) * scale).astype(np.float32) for which in (rows, others))
        squares: NDArray[np.float32] = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)
        # |a - b|² = |a|² + |b|² - 2ab turns all pairs into one matrix product. Rounding can make it slightly
        # negative.
        squares -= np.float32(2.0) * left @ right.T
        return squares.clip(min=0.0)


def _products(space: Space) -> list[Product]:
    """Build the products of all pairs of sizes, or none where there are more than `MOST_PRODUCTS`."""
    sizes = [(number, np.log2(found)) for number, p in enumerate(space.parameters) if (found := _sizes(p.values))]
    pairs = list(itertools.combinations(sizes, 2))
    return [_product(*pair) for pair in pairs] if len(pairs) <= MOST_PRODUCTS else []


def _product(one: tuple[int, Floats], other: tuple[int, Floats]) -> Product:
    # On the log scale a product is a sum, so the places of both factors simply add up to [0, 1].
    span = np.ptp(one[1]) + np.ptp(other[1])
    places = ((one[1] - one[1].min()) / span, (other[1] - other[1].min()) / span)
    return Product((one[0], other[0]), places)


def _sizes(values: Sequence[TunableValue]) -> list[float]:
    """Return the values as numbers where they are sizes, else an empty list."""
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < max(3, len(values)) or not all(math.isfinite(number) and number > 0 for number in numbers):
        return []
    return numbers if max(numbers) >= _SIZE_RANGE * min(numbers) else []


def _features(number: int, values: Sequence[TunableValue]) -> Iterator[Feature]:
    """Yield the features of one parameter: its distinct scales, equality, and whether both values are powers of two."""
    if len(values) < 2:
        return
    scales = [_squared(scale) for scale in _scales(values)]
    told = [squared for at, squared in enumerate(scales) if squared.any() and not _among(squared, scales[:at])]
    # The feature "equal or not" applies to every kind of value.
    told.append(1.0 - np.eye(len(values)))
    yield from (Feature(number, squared, _WEIGHT / len(told)) for squared in told)
    whole = _squared(_whole_powers(values))
    if whole.any() and not _among(whole, told):
        yield Feature(number, whole, _WHOLE_WEIGHT)


def _squared(scale: Floats) -> Floats:
    squared: Floats = (scale[:, None] - scale) ** 2 / max(float(np.ptp(scale)) ** 2, 1e-12)
    return squared


def _among(squared: Floats, others: Sequence[Floats]) -> bool:
    return any(np.allclose(squared, other) for other in others)


def _whole_powers(values: Sequence[TunableValue]) -> Floats:
    """Return 1.0 for each value that is a power of two, where all values are sizes."""
    sizes = _sizes(values)
    # `frexp` splits a number into mantissa and exponent; powers of two have the mantissa 0.5 exactly.
    return np.array([float(math.frexp(size)[0] == 0.5) for size in sizes] or [0.0] * len(values))


def _scales(values: Sequence[TunableValue]) -> list[Floats]:
    """Return base-2 logarithm and exponent of two of each value, for lists of more than two finite numbers."""
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < len(values) or len(values) == 2 or not all(map(math.isfinite, numbers)):
        return []
    # Shift lists with zero or negative values, for which the logarithm is undefined.
    shift = 0.0 if min(numbers) > 0 else 1.0 - min(numbers)
    scales = [np.log2(np.array(numbers) + shift)]
    if all(number.is_integer() for number in numbers):
        scales.append(_powers([int(number) for number in numbers]))
    return scales


def _powers(numbers: Sequence[int]) -> Floats:
    """Return the exponent of two in each number. Zero, which every power divides, counts as one above the largest."""
    # `n & -n` isolates the lowest set bit, which is the largest power of two that divides n.
    exponents = [math.log2(number & -number) if number else None for number in numbers]
    top = max((e for e in exponents if e is not None), default=0.0) + 1.0
    return np.array([top if e is None else e for e in exponents])

"""Represent a tuning space: parameters with listed values, constraints, and the remaining configurations.

The samplers work on `rows`: integer matrices of shape (configurations, parameters) that hold the position of each
parameter's value in its list. `runners.tunables` parses the declarations of kernels (it imports nothing of the web
application); `Space.declared` turns its result into a space in which the set of compiler flags is one more parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from runners import tunables
from runners.job import TunableValue
from runners.problems.expressions import ExpressionError, names_in
from runners.tunables import Parameter

Config = dict[str, TunableValue]
Key = tuple[TunableValue, ...]
Rows = NDArray[np.int32]

FLAGS = "@flags"
MOST_ROWS = 100_000
_GROWTH_SEED = 2017
_GROWTH_ROOM = 2  # rows times values may outgrow most_rows so far before constraints thin them


class SpaceError(ValueError):
    """Report a space that cannot be searched: no values, repeated values or names, a constraint over unknown names."""


@dataclass(frozen=True)
class Constraint:
    """Restrict the values of the parameters `names`.

    `holds` is called once per combination of their values. A combination for which the expression cannot be computed
    (division by zero) counts as violating it.
    """

    names: tuple[str, ...]
    holds: Callable[[Config], bool]

    @classmethod
    def expression(cls, text: str) -> Constraint:
        """Parse a constraint written as in `@constraint`. Raises ExpressionError."""
        return cls(tuple(sorted(names_in(text))), lambda config: _computed(text, config))

    def keeps(self, parameters: Sequence[Parameter], rows: Rows) -> NDArray[np.bool_]:
        """Return which rows over `parameters` (positions of their values) satisfy the constraint."""
        # A constraint between constants holds for all rows or for none.
        if not self.names:
            return np.full(len(rows), self.holds({}))
        mine = [i for i, parameter in enumerate(parameters) if parameter.name in self.names]
        # Evaluating an expression in Python is slow, so do it once per distinct combination and broadcast the
        # result.
        distinct, where = np.unique(rows[:, mine], axis=0, return_inverse=True)
        part = [parameters[i] for i in mine]
        verdicts = np.fromiter((self.holds(_read(part, row)) for row in distinct), bool, len(distinct))
        return verdicts[where.reshape(-1)]


@dataclass(frozen=True)
class Space:
    """Hold parameters and the constraints between them. Raises SpaceError when malformed.

    Where rows were `chosen` (see `among`), nothing else is valid.
    """

    parameters: tuple[Parameter, ...]
    constraints: tuple[Constraint, ...] = ()
    most_rows: int = field(default=MOST_ROWS, compare=False)
    chosen: Rows | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        names = {parameter.name for parameter in self.parameters}
        if not names or len(names) != len(self.parameters):
            raise SpaceError("a space needs parameters, each with a unique name")
        for parameter in self.parameters:
            if not parameter.values or len(set(parameter.values)) != len(parameter.values):
                raise SpaceError(f"{parameter.name} needs values, each listed once")
        for constraint in self.constraints:
            if unknown := set(constraint.names) - names:
                raise SpaceError(f"a constraint names unknown parameters: {', '.join(sorted(unknown))}")

    @classmethod
    def of(
        cls,
        values: Mapping[str, Sequence[TunableValue]],
        constraints: Iterable[str | Callable[[Config], bool]] = (),
        *,
        most_rows: int = MOST_ROWS,
    ) -> Space:
        """Build a space from value lists and constraints. The first value of a list is its default.

        Constraints are expressions, or functions of the whole configuration. Raises SpaceError and ExpressionError.
        """
        parameters = tuple(Parameter(name, tuple(listed), next(iter(listed), 0)) for name, listed in values.items())
        read = [
            Constraint.expression(c) if isinstance(c, str) else Constraint(tuple(values), c) for c in constraints
        ]
        return cls(parameters, tuple(read), most_rows)

    def among(self, rows: Rows) -> Space:
        """Return the space whose valid configurations are these valid rows alone."""
        return replace(self, chosen=rows)

    @staticmethod
    def declared(space: tunables.DeclaredSpace) -> Space:
        """Return the space of a kernel's `@tune`, `@constraint` and `@flags` lines.

        Several flag sets become one more parameter named FLAGS, whose values are the flags joined by spaces. Equal
        declarations return the same object, which keeps its rows.
        """
        return _declared(space)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the names of the parameters in order."""
        return tuple(parameter.name for parameter in self.parameters)

    @cached_property
    def _positions(self) -> tuple[dict[TunableValue, int], ...]:
        return tuple({value: i for i, value in enumerate(p.values)} for p in self.parameters)

    def key(self, config: Mapping[str, TunableValue]) -> Key:
        """Return the values in the parameters' order, which identify a configuration."""
        return tuple(config[name] for name in self.names)

    def defaults(self) -> Config:
        """Return the default of every parameter."""
        return {parameter.name: parameter.default for parameter in self.parameters}

    def row(self, config: Mapping[str, TunableValue]) -> tuple[int, ...] | None:
        """Return the configuration as positions, or None where it lacks a parameter or has a value that is not
        listed.
        """
        try:
            return tuple(known[config[name]] for name, known in zip(self.names, self._positions, strict=True))
        except (KeyError, TypeError):
            return None

    def config(self, row: Sequence[int] | Rows) -> Config:
        """Return the configuration at these positions."""
        return _read(self.parameters, row)

    def valid(self, config: Mapping[str, TunableValue]) -> bool:
        """Return whether all values are listed and all constraints hold."""
        row = self.row(config)
        return row is not None and bool(self.keep(np.array([row], dtype=np.int32)).all())

    def keep(self, rows: Rows) -> NDArray[np.bool_]:
        """Return which rows satisfy every constraint."""
        kept = np.ones(len(rows), dtype=bool)
        for constraint in self.constraints:
            kept[kept] = constraint.keeps(self.parameters, rows[kept])
        return kept if self.chosen is None else kept & rows_among(rows, self.chosen)

    @property
    def rows(self) -> Rows:
        """Return the valid configurations without repetition.

        Where enumeration exceeds `most_rows`, this is a random subset that is the same every time and includes the
        defaults.
        """
        return self._grown[0]

    @property
    def complete(self) -> bool:
        """Return whether `rows` contains every valid configuration."""
        return self._grown[1]

    def enumerate_valid(self) -> list[Config]:
        """Return the configurations of `rows`."""
        return [self.config(row) for row in self.rows]

    @cached_property
    def _grown(self) -> tuple[Rows, bool]:
        """Enumerate parameter by parameter, applying each constraint as soon as its last parameter is present."""
        if self.chosen is not None:
            return self.chosen, True
        rows, complete = np.zeros((1, 0), dtype=np.int32), True
        rng = np.random.default_rng(_GROWTH_SEED)
        for count, parameter in enumerate(self.parameters, start=1):
            # Thin before extending: the product with a long list of values could exhaust the memory.
            most = max(1, _GROWTH_ROOM * self.most_rows // len(parameter.values))
            rows, whole = _thinned(rows, most, rng)
            rows, small = _thinned(self._extended(rows, count), self.most_rows, rng)
            complete = complete and whole and small
        # The defaults are always suggested first and must be part of any sample.
        return rows if complete else self._with_defaults(rows), complete

    def _extended(self, rows: Rows, count: int) -> Rows:
        """Extend rows by the values of parameter `count` and drop those that are now known to be invalid."""
        values = np.arange(len(self.parameters[count - 1].values), dtype=np.int32)
        grown = np.column_stack([np.repeat(rows, len(values), axis=0), np.tile(values, len(rows))])
        for constraint in self.constraints:
            last = max((self.names.index(name) for name in constraint.names), default=0)
            if last == count - 1:
                grown = grown[constraint.keeps(self.parameters[:count], grown)]
        return grown

    def _with_defaults(self, rows: Rows) -> Rows:
        defaults = self.defaults()
        extra = [self.row(defaults)] if self.valid(defaults) else []
        return np.unique(np.array([*rows.tolist(), *extra], dtype=np.int32), axis=0)


@lru_cache(maxsize=16)
def _declared(space: tunables.DeclaredSpace) -> Space:
    sets = tuple(dict.fromkeys(" ".join(flags) for flags in space.flag_sets))
    flags = (Parameter(FLAGS, sets, sets[0]),) if len(sets) > 1 else ()
    return Space(space.parameters + flags, tuple(map(Constraint.expression, space.constraints)))


def rows_among(rows: Rows, others: Rows) -> NDArray[np.bool_]:
    """Return which rows are among the others, as a boolean array of shape (rows,)."""
    if not len(others):
        return np.zeros(len(rows), dtype=bool)
    return np.isin(_as_bytes(rows), _as_bytes(others))


def _as_bytes(rows: Rows) -> NDArray[np.void]:
    # `np.isin` compares scalars: viewing each row as one opaque block of bytes makes whole rows comparable.
    return np.ascontiguousarray(rows).view(f"V{rows.itemsize * rows.shape[1]}").reshape(-1)


def _thinned(rows: Rows, most: int, rng: np.random.Generator) -> tuple[Rows, bool]:
    """Return at most `most` random rows in their old order, and whether that was all of them."""
    if len(rows) <= most:
        return rows, True
    # Sorted, so that the order of the declaration is kept.
    return rows[np.sort(rng.choice(len(rows), most, replace=False))], False


def _read(parameters: Sequence[Parameter], row: Sequence[int] | Rows) -> Config:
    return {p.name: p.values[int(i)] for p, i in zip(parameters, row, strict=True)}


def _computed(text: str, config: Config) -> bool:
    try:
        return tunables.holds(text, config)
    except ExpressionError:
        return False

"""Parse the tunables that a kernel declares in its comments, with one syntax for all languages (`#` in Python).

    // @tune TILE_M 16 32 64 default=32
    // @constraint TILE_M * TILE_N <= 4096
    // @flags -O3 -march=native | -O3 -march=native -ffast-math

`@tune NAME VALUES…` lists the values to try (the first is the default where none is named), `@constraint` is an
expression that must hold, `@flags` lists sets of compiler flags (the first is the default). Hostile input: nothing is
evaluated but arithmetic, comparisons and and/or/not over the declared names.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runners.job import TunableValue
from runners.problems.expressions import ExpressionError, Number, evaluate_tree, parse_expression

_LINE = re.compile(r"^\s*(?://|#)\s*@(tune|constraint|flags)\b(.*)$")
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")
_WORD = re.compile(r"^[A-Za-z0-9_.+-]{1,64}$")
# Declarations come from a model's answer, so their number is limited.
MOST_PARAMETERS = 32
MOST_VALUES = 64


class TunablesError(ValueError):
    """Report that a declaration can't be read. `complaints` names each fault as `line N: what is wrong`."""

    def __init__(self, complaints: list[str]) -> None:
        super().__init__("; ".join(complaints))
        self.complaints = complaints


@dataclass(frozen=True)
class Parameter:
    """Describe one tunable: its values in the order declared, and which of them is the default."""

    name: str
    values: tuple[TunableValue, ...]
    default: TunableValue


@dataclass(frozen=True)
class DeclaredSpace:
    """Hold everything that a kernel declares; empty if it declares nothing."""

    parameters: tuple[Parameter, ...] = ()
    constraints: tuple[str, ...] = ()
    flag_sets: tuple[tuple[str, ...], ...] = ()

    def defaults(self) -> dict[str, TunableValue]:
        """Return the default of every tunable."""
        return {parameter.name: parameter.default for parameter in self.parameters}

    def violated(self, values: Mapping[str, TunableValue]) -> list[str]:
        """Return the constraints that these values break."""
        return [constraint for constraint in self.constraints if not holds(constraint, values)]

    def complaints(self, chosen: Mapping[str, TunableValue]) -> list[str]:
        """Return what is wrong with a choice: unknown names, values not listed, broken constraints."""
        known = {parameter.name: parameter for parameter in self.parameters}
        faults = [f"{name} is not a tunable of this kernel" for name in chosen if name not in known]
        for name, value in chosen.items():
            if name in known and value not in known[name].values:
                faults.append(f"{name}={value} is not one of {_listed(known[name].values)}")
        return faults or [f"violates {c}" for c in self.violated({**self.defaults(), **chosen})]

    def enumerate_valid(self) -> Iterator[dict[str, TunableValue]]:
        """Yield every combination that keeps the constraints, in the order declared."""
        names = [parameter.name for parameter in self.parameters]
        for combination in itertools.product(*(parameter.values for parameter in self.parameters)):
            values = dict(zip(names, combination, strict=True))
            if not self.violated(values):
                yield values

    @property
    def size(self) -> int:
        """Return the number of combinations before constraints, flag sets included."""
        count = max(1, len(self.flag_sets))
        for parameter in self.parameters:
            count *= len(parameter.values)
        return count


def parse(text: str) -> DeclaredSpace:
    """Read the declarations of a kernel's text. Raises TunablesError naming every fault with its line."""
    reader = _Reader()
    for number, line in enumerate(text.splitlines(), start=1):
        if found := _LINE.match(line):
            reader.take(number, found[1], found[2].strip())
    return reader.space()


class _Reader:
    """Collect declarations and faults line by line."""

    def __init__(self) -> None:
        self._parameters: dict[str, Parameter] = {}
        self._constraints: list[tuple[int, str]] = []
        self._flag_sets: list[tuple[str, ...]] = []
        self._complaints: list[str] = []

    def take(self, number: int, kind: str, rest: str) -> None:
        """Read one declaration."""
        try:
            if kind == "tune":
                self._take_parameter(rest)
            elif kind == "constraint":
                self._constraints.append((number, rest))
            else:
                self._flag_sets += [tuple(flags.split()) for flags in rest.split("|")]
        except ValueError as error:
            self._complaints.append(f"line {number}: {error}")

    def space(self) -> DeclaredSpace:
        """Return everything that was read. Raises TunablesError."""
        defaults = {p.name: p.default for p in self._parameters.values()}
        for number, constraint in self._constraints:
            try:
                if not holds(constraint, defaults):
                    self._complaints.append(f"line {number}: the defaults violate {constraint}")
            except ExpressionError as error:
                self._complaints.append(f"line {number}: {error}")
        if self._complaints:
            raise TunablesError(self._complaints)
        constraints = tuple(text for _, text in self._constraints)
        return DeclaredSpace(tuple(self._parameters.values()), constraints, tuple(self._flag_sets))

    def _take_parameter(self, rest: str) -> None:
        name, *words = rest.split() or [""]
        if not _NAME.match(name):
            raise ValueError(f"{name!r} is not a name; write @tune NAME VALUES… default=VALUE")
        if name in self._parameters:
            raise ValueError(f"{name} is declared twice")
        named = [word.removeprefix("default=") for word in words if word.startswith("default=")]
        values = tuple(read_value(word) for word in words if not word.startswith("default="))
        if not values or len(set(values)) != len(values) or len(values) > MOST_VALUES:
            raise ValueError(f"{name} needs 1 to {MOST_VALUES} different values")
        default = read_value(named[0]) if named else values[0]
        if default not in values or len(named) > 1:
            raise ValueError(f"the default of {name} is not one of {_listed(values)}")
        if len(self._parameters) == MOST_PARAMETERS:
            raise ValueError(f"more than {MOST_PARAMETERS} tunables")
        self._parameters[name] = Parameter(name, values, default)


def read_value(word: str) -> TunableValue:
    """Parse an int, a float, true, false or a plain word. Raises ValueError."""
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    if not _WORD.match(word):
        raise ValueError(f"{word!r} is not a value: numbers, true, false and plain words are")
    return word


def holds(constraint: str, values: Mapping[str, TunableValue]) -> bool:
    """Return whether the constraint is true of these values. Raises ExpressionError."""
    return bool(_truth(parse_expression(constraint).body, values))


def _truth(node: ast.expr, values: Mapping[str, TunableValue]) -> bool:
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_truth(part, values) for part in parts)
        case ast.BoolOp(op=ast.Or(), values=parts):
            return any(_truth(part, values) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _truth(operand, values)
        case ast.Compare(left=left, ops=ops, comparators=others):
            return _chain([left, *others], ops, values)
    return bool(_operand(node, values))


def _chain(nodes: list[ast.expr], ops: list[ast.cmpop], values: Mapping[str, TunableValue]) -> bool:
    operands = [_operand(node, values) for node in nodes]
    return all(_compare(op, *pair) for op, pair in zip(ops, itertools.pairwise(operands), strict=True))


def _compare(op: ast.cmpop, left: Number | str, right: Number | str) -> bool:
    if isinstance(op, ast.Eq | ast.NotEq):
        return (left == right) == isinstance(op, ast.Eq)
    if isinstance(left, str) or isinstance(right, str):
        raise ExpressionError("words can only be compared with == and !=")
    match op:
        case ast.Lt():
            return left < right
        case ast.LtE():
            return left <= right
        case ast.Gt():
            return left > right
        case ast.GtE():
            return left >= right
    raise ExpressionError("only < <= > >= == != compare")


def _operand(node: ast.expr, values: Mapping[str, TunableValue]) -> Number | str:
    match node:
        case ast.Constant(value=str() as text):
            return text
        # Truth values count as 0 and 1, as in the preprocessor of a compiled kernel (`macro_text`).
        case ast.Constant(value=bool() as flag):
            return int(flag)
        case ast.Name(id=name) if isinstance(values.get(name), str):
            return str(values[name])
    numbers: dict[str, Number] = {n: v for n, v in values.items() if not isinstance(v, str)}
    return evaluate_tree(node, numbers)


def _listed(values: tuple[TunableValue, ...]) -> str:
    return ", ".join(str(value) for value in values)

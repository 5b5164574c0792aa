"""Evaluate arithmetic over named sizes, as problem files write it: `rows * cols`, `ceil_div(k, 128)`, `min(m, 64)`.

An expression has only numbers, names, + - * / // % **, and calls of the three functions below. The input is hostile:
anything else raises ExpressionError, and so do results beyond `LARGEST`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache

from runners.problems.syntax import NOT_PYTHON, expression_tree

Number = int | float

# Sizes travel as int64 to the kernel.
LARGEST = 2**62
LONGEST_TEXT = 500
LARGEST_EXPONENT = 8
_UNCOMPUTABLE = (ZeroDivisionError, OverflowError, RecursionError)


class ExpressionError(ValueError):
    """Report that a text can't be evaluated. The message says which part."""


def evaluate(text: str, names: Mapping[str, Number]) -> Number:
    """Return the value of `text` with `names` bound. Raises ExpressionError."""
    try:
        return _value(parse_expression(text).body, names)
    except _UNCOMPUTABLE as error:
        raise ExpressionError(f"{text!r}: {error}") from error


def evaluate_tree(node: ast.expr, names: Mapping[str, Number]) -> Number:
    """Return the value of an expression that is parsed already. Raises ExpressionError."""
    try:
        return _value(node, names)
    except _UNCOMPUTABLE as error:
        raise ExpressionError(str(error)) from error


def names_in(text: str) -> set[str]:
    """Return the sizes that an expression reads. Raises ExpressionError."""
    nodes = list(ast.walk(parse_expression(text)))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called}


# The same few expressions are evaluated for every case, and for every configuration of a tuning space.
@lru_cache(maxsize=128)
def parse_expression(text: str) -> ast.Expression:
    """Return the syntax tree of an expression, whatever it contains; callers share and never change it.

    Raises ExpressionError.
    """
    # The parser takes time and memory beyond the text's length.
    if len(text) > LONGEST_TEXT:
        raise ExpressionError(f"an expression of {len(text)} characters; at most {LONGEST_TEXT} are read")
    try:
        return expression_tree(text.strip())
    except NOT_PYTHON as error:
        raise ExpressionError(f"{text!r} is not an expression") from error


def _ceil_div(a: Number, b: Number) -> Number:
    return -(-a // b)


def _power(base: Number, exponent: Number) -> Number:
    # Python computes powers exactly, so 9**9**9 would take all memory before the result could be checked.
    if not 0 <= exponent <= LARGEST_EXPONENT:
        raise ExpressionError(f"exponent {exponent} is outside 0…{LARGEST_EXPONENT}")
    result: Number = base**exponent
    return result


_OPERATORS: dict[type[ast.AST], Callable[..., Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_FUNCTIONS: dict[str, Callable[..., Number]] = {"min": min, "max": max, "ceil_div": _ceil_div}


def _value(node: ast.expr, names: Mapping[str, Number]) -> Number:
    value = _unchecked(node, names)
    if abs(value) > LARGEST:
        raise ExpressionError(f"{ast.unparse(node)} is beyond {LARGEST}")
    return value


def _unchecked(node: ast.expr, names: Mapping[str, Number]) -> Number:
    match node:
        # True and False are integers in Python.
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Name(id=name):
            raise ExpressionError(f"{name!r} is not a known size ({', '.join(sorted(names)) or 'none'})")
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(operand, names))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, names), _value(right, names))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _call(name, [_value(arg, names) for arg in args])
    raise ExpressionError(
        f"{ast.unparse(node)!r} is not allowed; use numbers, sizes, + - * / // % **, {', '.join(_FUNCTIONS)}"
    )


def _call(name: str, values: list[Number]) -> Number:
    try:
        return _FUNCTIONS[name](*values)
    except TypeError as error:
        raise ExpressionError(f"{name}: {error}") from error

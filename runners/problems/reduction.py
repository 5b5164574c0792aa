"""Make a KernelBench problem small enough for a CPU by shrinking its module-level integer constants.

All sizes are divided by the same power of two, so that equal ones stay equal, twice a width stays twice a width, and
divisibility by small numbers (groups, heads) survives; sizes that would fall below `SMALLEST` stop there. Batches are
cut first, because nothing else depends on them. The size of a case is estimated from the text: elements made by
get_inputs, times the widest constant that the model is built with, times the area of the kernel window. This is a
heuristic: `python -m runners problems check --run` shows its misses, and a file may declare its own sizes in a
comment (`# @cpu batch_size=2 width=32`).
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass

from runners.problems.expressions import ExpressionError, evaluate
from runners.problems.python_text import Constant

# 2 MiB of float32: a CPU touches them in well under a millisecond.
MOST_ELEMENTS = 1 << 19
MOST_WORK = 1 << 27
WIDEST = 1024
_BATCH = re.compile(r"batch|^(bs|B|b)$", re.IGNORECASE)
# Shrinking one of these would change the algorithm rather than the size.
_KEEP = re.compile(
    r"kernel|stride|padd|dilat|group|heads?$|num_(layers|blocks|experts)|scale_factor|pool|exponent|top_?k",
    re.IGNORECASE,
)
_MAKERS = {"rand", "randn", "randint", "ones", "zeros", "empty", "full", "rand_like", "randperm", "triu", "tril"}
SMALLEST = 16
_LADDER = (  # batches at most, everything else divided by
    *((16, 1), (4, 1), (4, 2), (2, 2), (4, 4), (2, 4), (4, 8), (4, 16), (4, 32), (4, 64)),
    *((4, 256), (4, 1024), (2, 4096), (1, 4096)),
)
_DECLARED = re.compile(r"^[ \t]*#[ \t]*@cpu[ \t]+(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Estimate:
    """Estimate the elements of all inputs, and roughly the number of multiply-adds."""

    elements: float
    work: float
    widest: int

    @property
    def small(self) -> bool:
        """Return whether a CPU computes this in a fraction of a second."""
        return self.elements <= MOST_ELEMENTS and self.work <= MOST_WORK and self.widest <= WIDEST


def reduced_constants(tree: ast.Module, constants: dict[str, Constant]) -> dict[str, Constant]:
    """Return the constants of a CPU case: the mildest reduction whose estimate is small, or the original if that is."""
    tried = dict(constants)
    for batch_cap, divisor in _LADDER:
        if estimate(tree, tried).small:
            return tried
        tried = {name: _shrink(name, value, batch_cap, divisor) for name, value in constants.items()}
    return tried


def declared_constants(source: str, constants: dict[str, Constant]) -> dict[str, Constant] | None:
    """Return the constants with those that `# @cpu NAME=VALUE…` comments set, or None without such a comment.

    Raises ValueError for a name that is no integer constant of the module, or a value that is no positive integer.
    """
    words = [word for line in _DECLARED.findall(source) for word in line.split()]
    if not words:
        return None
    chosen = dict(constants)
    for word in words:
        name, _, value = word.partition("=")
        if not isinstance(constants.get(name), int) or not value.isdecimal() or int(value) < 1:
            raise ValueError(f"@cpu {word}: expected NAME=VALUE with an integer constant of this file")
        chosen[name] = int(value)
    return chosen


def described(before: dict[str, Constant], after: dict[str, Constant]) -> str:
    """Describe what changed: `batch_size 1024 → 16, in_features 8192 → 512`."""
    return ", ".join(f"{name} {before[name]} → {after[name]}" for name in before if before[name] != after[name])


def estimate(tree: ast.Module, constants: dict[str, Constant]) -> Estimate:
    """Estimate the size of a case from the text of get_inputs and get_init_inputs."""
    names = _all_integers(tree, constants)
    sizes = [math.prod(shape) for shape in _input_shapes(tree, names)]
    elements = float(sum(sizes)) or 1.0
    built_with = _names_used(tree, "get_init_inputs")
    lists = {item for name in built_with for item in _items(constants.get(name, []))}
    widths = [names[n] for n in built_with if n in names and not _KEEP.search(n)] + list(lists)
    windows = [n for n in constants if "kernel" in n.lower() and "pool" not in n.lower()]
    window = math.prod(max(1, *_items(constants[n])) ** 2 for n in windows)
    last = max((shape[-1] for shape in _input_shapes(tree, names) if shape), default=1)
    width = max([w for w in widths if w > 0], default=last if len(sizes) > 1 else 1)
    return Estimate(elements, elements * width * min(window, 4096), max([width, 1]))


def _shrink(name: str, value: Constant, batch_cap: int, divisor: int) -> Constant:
    if isinstance(value, list):
        return [_divided(item, divisor) for item in value]
    if _BATCH.search(name):
        return _halved(value, batch_cap)
    return value if _KEEP.search(name) else _divided(value, divisor)


def _divided(value: int, divisor: int) -> int:
    return max(value // divisor, min(value, SMALLEST))


def _halved(value: int, cap: int) -> int:
    while value > cap:
        value = (value + 1) // 2
    return value


def _items(value: Constant) -> list[int]:
    return value if isinstance(value, list) else [value]


def _function(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    return next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name), None)


def _names_used(tree: ast.Module, function: str) -> set[str]:
    node = _function(tree, function)
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if node else set()


def _all_integers(tree: ast.Module, constants: dict[str, Constant]) -> dict[str, int]:
    """Return the constants and what plain arithmetic in the module computes from them."""
    names = {name: value for name, value in constants.items() if isinstance(value, int)}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            value = _number(node.value, names)
            if name not in constants and value is not None:
                names[name] = value
    return names


def _number(node: ast.expr, names: dict[str, int]) -> int | None:
    try:
        return int(evaluate(ast.unparse(node), names))
    except (ExpressionError, RecursionError):
        return None


def _input_shapes(tree: ast.Module, names: dict[str, int]) -> list[list[int]]:
    node = _function(tree, "get_inputs")
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)] if node else []
    return [_shape(call, tree, names) for call in calls if _is_maker(call)]


def _is_maker(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in _MAKERS


def _shape(call: ast.Call, tree: ast.Module, names: dict[str, int]) -> list[int]:
    constants = {
        n.targets[0].id: n.value
        for n in tree.body
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
    }
    listed: list[ast.expr] = []
    single: list[ast.expr] = []
    for argument in [*call.args, *(k.value for k in call.keywords if k.arg == "size")]:
        node = argument.value if isinstance(argument, ast.Starred) else argument
        if isinstance(node, ast.Name) and node.id not in names:
            node = constants.get(node.id, node)
        if isinstance(node, ast.Tuple | ast.List):
            (single if isinstance(argument, ast.Starred) else listed).extend(node.elts)
        else:
            single.append(node)
    # Beside a shape that is a sequence, numbers are contents: the bounds of `randint`, the value of `full`.
    return [n for item in listed or single if (n := _number(item, names)) is not None and n > 0]

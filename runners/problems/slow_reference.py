"""Detect references written as Python loops over tensors: a speedup over one says nothing about the kernel.

The syntax tree tells. A loop counts if it goes through a range or a tensor and its body cuts a tensor with its
counter (`x[:, t]`), or while a condition holds that its body works on with torch. Loops over layers do not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from runners.problems.syntax import NOT_PYTHON, module_tree

ENTRIES = ("Model", "reference", "ref_kernel")
# A few rounds over heads or levels are ordinary code.
FEWEST_ROUNDS = 5
# Calls in a row, `torch.abs(x).max().item()`, of which the first one is looked up.
LONGEST_CHAIN = 40
_CUTTING = {"unbind", "split", "chunk", "tensor_split"}


def slow_loop(source: str, entries: Iterable[str] = ENTRIES) -> int | None:
    """Return the line of the first loop over tensors that an entry point reaches, or None."""
    try:
        tree = module_tree(source)
    except NOT_PYTHON:
        return None
    lines = [loop.lineno for node in _reached(tree, entries) for loop in _loops(node) if _is_over_tensors(loop)]
    return min(lines, default=None)


def _reached(tree: ast.Module, entries: Iterable[str]) -> Iterator[ast.AST]:
    """Yield the functions that run in a call: an entry and what it names, constructors left out."""
    defined = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    waiting, seen = [name for name in entries if name in defined], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for part in _parts(defined[name]):
            yield part
            waiting += [n.id for n in ast.walk(part) if isinstance(n, ast.Name) and n.id in defined]
        if isinstance(node := defined[name], ast.ClassDef):  # layers are named where they are constructed
            waiting += [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in defined]


def _parts(node: ast.FunctionDef | ast.ClassDef) -> list[ast.FunctionDef]:
    if isinstance(node, ast.FunctionDef):
        return [node]
    return [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name != "__init__"]


def _loops(node: ast.AST) -> Iterator[ast.For | ast.While]:
    return (child for child in ast.walk(node) if isinstance(child, ast.For | ast.While))


def _is_over_tensors(loop: ast.For | ast.While) -> bool:
    if isinstance(loop, ast.While):
        return any(_is_torch_call(node) for node in ast.walk(loop))
    counted = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    if _few_rounds(loop.iter):
        return False
    if _calls(loop.iter) & _CUTTING:
        return True
    if not _calls(loop.iter) & {"range", "enumerate"}:
        return False
    called = {id(node.func) for node in ast.walk(loop) if isinstance(node, ast.Call)}
    return any(
        _cuts(node, counted)
        for node in ast.walk(loop)
        if isinstance(node, ast.Subscript) and id(node) not in called
    )


def _few_rounds(iterated: ast.expr) -> bool:
    """Return whether a range is a literal of a few rounds."""
    match iterated:
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int() as rounds)]):
            return rounds < FEWEST_ROUNDS
    return False


def _cuts(node: ast.Subscript, counted: set[str]) -> bool:
    """Return whether a subscript that is not called cuts a tensor with the loop's counter: `x[:, t]`, `x[t]`."""
    if not counted & {n.id for n in ast.walk(node.slice) if isinstance(n, ast.Name)}:
        return False
    return not (isinstance(node.value, ast.Attribute) and isinstance(node.slice, ast.Name))


def _calls(node: ast.AST) -> set[str]:
    functions = [child.func for child in ast.walk(node) if isinstance(child, ast.Call)]
    return {
        f.attr if isinstance(f, ast.Attribute) else f.id
        for f in functions
        if isinstance(f, ast.Attribute | ast.Name)
    }


def _is_torch_call(node: ast.AST) -> bool:
    """Return whether a node is a call on one of torch's modules, such as `torch.any(x)` or `torch.abs(x).max()`."""
    if not isinstance(node, ast.Call):
        return False
    first: ast.expr = node.func
    # A limit, because every call of a chain is looked at, and each would walk down the rest.
    for _ in range(LONGEST_CHAIN):
        if isinstance(first, ast.Call):
            first = first.func
        elif isinstance(first, ast.Attribute | ast.Subscript):
            first = first.value
    return isinstance(first, ast.Name) and first is not node.func and first.id in ("torch", "F", "nn")

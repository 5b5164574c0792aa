"""Read and rewrite the Python of foreign problem files as text. Nothing is executed here."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from runners.problems.base import ProblemError
from runners.problems.expressions import ExpressionError, evaluate_tree
from runners.problems.syntax import NOT_PYTHON, module_tree

# A name that no module would choose.
DEVICE_NAME = "__kernel_device__"
Constant = int | list[int]


def parse(source: str, file: str) -> ast.Module:
    """Return the module's syntax tree. Raises ProblemError naming the file and line."""
    try:
        return module_tree(source, file)
    except SyntaxError as error:
        raise ProblemError([f"{file}: line {error.lineno}: not Python: {error.msg}"]) from error
    except NOT_PYTHON as error:
        raise ProblemError([f"{file}: not Python: {error}"]) from error


def defined_names(tree: ast.Module) -> set[str]:
    """Return the functions, classes and plain variables that the module defines at its top level."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def split_assignments(tree: ast.Module) -> ast.Module:
    """Split top-level `a, b = 1, 2` and `a = b = 1` into two assignments, if literals are assigned."""
    body = [part for node in tree.body for part in _split(node)]
    return ast.fix_missing_locations(ast.Module(body, tree.type_ignores))


def _split(node: ast.stmt) -> list[ast.stmt]:
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(
            values
        ) and all(_literal(value) is not None for value in values):
            pairs = list(zip(names, values, strict=True))
        case ast.Assign(targets=[_, _, *_] as names, value=value) if _literal(value) is not None:
            pairs = [(name, value) for name in names]
        case _:
            return [node]
    return [ast.copy_location(ast.Assign([name], value), node) for name, value in pairs]


def integer_constants(tree: ast.Module) -> dict[str, Constant]:
    """Return top-level names bound to literal integers, or to tuples or lists of them, in order of appearance.

    Arithmetic on literals counts as one (`2048 * 2`); what is computed from other names does not.
    """
    found: dict[str, Constant] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = _literal(node.value)
            if value is not None:
                found[node.targets[0].id] = value
    return found


def with_constants(tree: ast.Module, values: Mapping[str, Any]) -> ast.Module:
    """Return a copy of the module with the top-level literals named in `values` replaced. Tuples stay tuples."""
    body: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in values and _literal(node.value) is not None:
                node = ast.copy_location(ast.Assign(node.targets, _as_node(values[name], node.value)), node)
        body.append(node)
    return ast.fix_missing_locations(ast.Module(body, tree.type_ignores))


def for_any_device(tree: ast.Module) -> ast.Module:
    """Replace `"cuda"` arguments and `.cuda()` calls by the device that the global `__kernel_device__` names.

    A reference written for one GPU vendor then runs on a CPU.
    """
    _AnyDevice().visit(tree)  # changes the tree in place
    return ast.fix_missing_locations(tree)


def on_its_device(source: str, file: str) -> str:
    """Return a module's text in which `"cuda"` means a GPU if there is one and else the CPU.

    A text that names no such device is returned unchanged. Comments are lost with the change.
    """
    tree = for_any_device(parse(source, file))
    if not any(isinstance(node, ast.Name) and node.id == DEVICE_NAME for node in ast.walk(tree)):
        return source
    chosen = module_tree(f'import torch\n{DEVICE_NAME} = "cuda" if torch.cuda.is_available() else "cpu"').body
    first = next((n for n, node in enumerate(tree.body) if not _comes_first(node)), len(tree.body))
    # After docstring and __future__ imports, which must stay first.
    tree.body[first:first] = chosen
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _comes_first(node: ast.stmt) -> bool:
    """Return whether a statement is a docstring or an import from __future__."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


class _AnyDevice(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, str) and (node.value == "cuda" or node.value.startswith("cuda:")):
            return ast.copy_location(ast.Name(DEVICE_NAME, ast.Load()), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and not node.args:
            moved = ast.Attribute(node.func.value, "to", ast.Load())
            return ast.copy_location(ast.Call(moved, [ast.Name(DEVICE_NAME, ast.Load())], []), node)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        return node


def _literal(node: ast.expr) -> Constant | None:
    if isinstance(node, ast.Tuple | ast.List):
        items = [_literal(item) for item in node.elts]
        return (
            [i for i in items if isinstance(i, int)] if items and all(isinstance(i, int) for i in items) else None
        )
    try:
        value = evaluate_tree(node, {})
    except ExpressionError:
        return None
    return value if isinstance(value, int) else None


def _as_node(value: Any, like: ast.expr) -> ast.expr:
    if isinstance(value, int):
        return ast.Constant(value)
    items: list[ast.expr] = [ast.Constant(int(item)) for item in value]
    return ast.Tuple(items, ast.Load()) if isinstance(like, ast.Tuple) else ast.List(items, ast.Load())

"""Write the change to a captured script that lets it use a package, as a diff that `patch -p1` applies."""

from __future__ import annotations

import ast
import difflib

from runners.export.declaration import ExportError
from runners.export.package import Exported


def script_patch(kernel: Exported, script: str, name: str) -> str:
    """Return a diff of the script named `name` that activates the package first of all. Raises ExportError.

    The lines come before every other import, so that functions imported by name are the replaced ones too.
    """
    if kernel.calls is None:
        raise ExportError(f"{kernel.name} was not captured from a program, so there is no script to change.")
    try:
        tree = ast.parse(script)
    except (SyntaxError, ValueError) as error:
        raise ExportError(f"{name} is not Python: {error}") from error
    lines = script.splitlines(keepends=True)
    at = _first_line(tree)
    added = [f"import {kernel.name}  # a tuned kernel; without this line and the next torch computes\n", "\n"]
    added.insert(1, f"{kernel.name}.activate()\n")
    changed = [*lines[:at], *added, *lines[at:]]
    diff = difflib.unified_diff(lines, changed, f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in diff)


def _first_line(tree: ast.Module) -> int:
    """Return the number of lines before the first statement that is neither docstring nor import from __future__."""
    for node in tree.body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_text and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            decorators = getattr(node, "decorator_list", [])
            first: int = min(n.lineno for n in (node, *decorators))
            return first - 1
    return len(ast.unparse(tree).splitlines())

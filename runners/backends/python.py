"""Prepare Python candidates: modules with `custom_kernel` or `ModelNew`.

Nothing is compiled here; only the tunables are set. A tunable NAME is a module-level assignment `NAME = value`, and
choosing replaces its right-hand side.
"""

from __future__ import annotations

import ast
import hashlib
import time

from runners.backends.base import Artefact, Backend, BuildRequest, chosen_tunables
from runners.job import BuildReport, Language, Source, TunableValue
from runners.problems.syntax import NOT_PYTHON, module_tree

ENTRIES = ("custom_kernel", "ModelNew", "Model")

MODULE_FILE = "kernel.py"


class PythonBackend(Backend):
    """Prepare a module that is imported in the sandbox."""

    language = Language.PYTHON
    kind = "module"

    def build(self, request: BuildRequest) -> Artefact:
        """Write the module with the chosen tunables; a syntax error or a missing entry is a failed build."""
        started = time.monotonic()
        module = request.folder / MODULE_FILE
        try:
            text = with_tunables(request.source)
            log = _missing_entry(text)
        except NOT_PYTHON as error:
            text, log = "", f"{type(error).__name__}: {error}"
        if not log:
            module.write_text(text)
            module.chmod(0o644)
        digest = hashlib.sha256(text.encode()).hexdigest() if not log else None
        report = BuildReport(not log, time.monotonic() - started, False, log, digest)
        return Artefact(self.kind, None if log else module, "", report)


def with_tunables(source: Source) -> str:
    """Return the text with every tunable's assignment set to its chosen value. Raises ValueError if one is missing."""
    lines = source.text.splitlines(keepends=True)
    assigned = _assignments(module_tree(source.text))
    for name, value in chosen_tunables(source).items():
        if name not in assigned:
            raise ValueError(f"tunable {name} has no module-level assignment {name} = …")
        node = assigned[name]
        end = node.end_lineno or node.lineno
        # Blank lines keep the line count, so that messages of the module name the lines that its author wrote.
        lines[node.lineno - 1 : end] = [f"{name} = {_literal(value)}\n", *["\n"] * (end - node.lineno)]
    return "".join(lines)


def _assignments(module: ast.Module) -> dict[str, ast.Assign]:
    found: dict[str, ast.Assign] = {}
    for node in module.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, node)
    return found


def _literal(value: TunableValue) -> str:
    return repr(value)


def _missing_entry(text: str) -> str:
    names = set()
    for node in module_tree(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return "" if names & set(ENTRIES) else f"the module defines none of {', '.join(ENTRIES)}"

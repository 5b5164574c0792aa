"""Read a problem directory of kernelbench.com's "hard" benchmark: reference.py, shapes.py and problem.yaml.

Its harness keeps the numeric stress cases and the hardware's peaks in files of its own, src/eval/numeric_stress.py and
src/hardware/NAME.py two directories up; they are read where they are. Nothing is executed: shapes, stress cases and
peaks are taken from the syntax tree. What is read becomes `task.json` in the bundle, so that a runner needs neither
PyYAML nor the directory. Hostile input: size caps, the safe loader without anchors, no links.
"""

from __future__ import annotations

import ast
import json
import math
import re
from pathlib import Path
from typing import Any

from runners.job import ProblemBundle
from runners.problems.base import ProblemError
from runners.problems.expressions import ExpressionError, evaluate
from runners.problems.files import read_file
from runners.problems.gpumode_task import load_yaml
from runners.problems.python_text import defined_names, parse
from runners.problems.reading import FieldReader

FORMAT = "kernelbench_hard"
TASK_FILE = "problem.yaml"
ENTRY = "task.json"
REFERENCE = "reference.py"
SHAPES = "shapes.py"
_NEEDED = (TASK_FILE, REFERENCE, SHAPES)
# Published directories hold these too, so that two of them mark one that lacks some of what is needed.
_MARKS = (*_NEEDED, "check.py")
# Each shape is checked and timed.
MOST_SHAPES = 50
MOST_STRESS_CASES = 20
_REQUIRED = ("Model", "get_inputs", "get_init_inputs")
_REGIMES = ("compute", "memory")


def is_hard_problem(directory: Path) -> bool:
    """Return whether a directory holds at least two files of this format.

    One that lacks a file is not looked into for other formats: its reference.py alone reads as a KernelBench problem,
    with other sizes and tolerances.
    """
    return sum((directory / name).is_file() for name in _MARKS) > 1


def read_kernelbench_hard(directory: Path) -> ProblemBundle:
    """Return the bundle of a problem directory. Raises ProblemError with every fault found."""
    complaints = [f"{name}: no such file" for name in _NEEDED if not (directory / name).is_file()]
    if complaints:
        raise ProblemError(complaints)
    reference = read_file(directory / REFERENCE)
    reader = FieldReader(load_yaml(read_file(directory / TASK_FILE), TASK_FILE), TASK_FILE, complaints)
    task = _read_task(reader, directory.name)
    shapes = _read_shapes(read_file(directory / SHAPES), complaints)
    task["shapes"] = _for_module(shapes, reference, complaints)
    _check_formulas(task, shapes, complaints)
    task["stress"] = _read_stress(directory, task["name"], complaints)
    task["peaks"] = _read_peaks(directory, task["hardware"])
    if complaints:
        raise ProblemError(complaints)
    files = {REFERENCE: reference, ENTRY: json.dumps(task, indent=1)}
    return ProblemBundle(directory.name, FORMAT, ENTRY, files)


def _read_task(reader: FieldReader, directory: str) -> dict[str, Any]:
    """Take the fields that determine the evaluation; the rest (the best known library, trial counts) is not needed."""
    return {
        "name": reader.text("name", directory),
        "title": reader.text("display_name", directory),
        "precision": reader.text("precision"),
        "regime": reader.choice("regime", _REGIMES, "compute"),
        "flops": reader.text("flops_formula", required=True),
        "bytes": reader.text("bytes_formula", required=True),
        "peak": reader.text("peak_tflops_key"),
        "hardware": list(reader.texts("hardware")),
        "forbidden": list(reader.texts("forbidden")),
        "tolerance": _tolerances(reader.take("tolerance", dict, {}), reader.complaints),
    }


def _tolerances(table: dict[Any, Any], complaints: list[str]) -> dict[str, list[float]]:
    """Return [atol, rtol] by dtype. A single number is both; `1e-2` may be text, because YAML reads it so."""
    found: dict[str, list[float]] = {}
    for key, value in table.items():
        name = str(key).removeprefix("torch.").replace("fp8_", "float8_")
        pair = [value.get("atol", 0), value.get("rtol", 0)] if isinstance(value, dict) else [value, value]
        try:
            found[name] = [float(part) for part in pair]
        except (TypeError, ValueError):
            complaints.append(f"{TASK_FILE}.tolerance.{str(key)[:40]}: expected a number or atol and rtol")
            continue
        if not all(math.isfinite(part) and part >= 0 for part in found[name]):
            complaints.append(f"{TASK_FILE}.tolerance.{str(key)[:40]}: expected finite numbers of at least 0")
    return found


def _read_shapes(text: str, complaints: list[str]) -> list[dict[str, int]]:
    """Return the literal list SHAPES of shapes.py."""
    value = _assigned(parse(text, "shapes.py"), "SHAPES")
    shapes = None if value is None else _literal(value, {})
    if not isinstance(shapes, list) or not shapes:
        complaints.append("shapes.py: no SHAPES, a list of literal tables")
        return []
    if len(shapes) > MOST_SHAPES:
        complaints.append(f"shapes.py: {len(shapes)} shapes; at most {MOST_SHAPES} are read")
    for number, shape in enumerate(shapes[:MOST_SHAPES]):
        if not (isinstance(shape, dict) and shape and all(_is_size(*item) for item in shape.items())):
            complaints.append(f"shapes.py: shape {number} is not a table of positive integers")
            return []
    return shapes[:MOST_SHAPES]


def _is_size(name: Any, value: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and type(value) is int and value > 0


def _for_module(shapes: list[dict[str, int]], reference: str, complaints: list[str]) -> list[dict[str, Any]]:
    """Return each shape as `sizes`, named as in shapes.py, and `names`, the module variables that they set.

    A variable has the size's name, or that name in capitals.
    """
    defined = defined_names(parse(reference, REFERENCE))
    complaints += [f"{REFERENCE}: no {name}" for name in _REQUIRED if name not in defined]
    names: dict[str, str] = {}
    for size in dict.fromkeys(name for shape in shapes for name in shape):
        found = next((name for name in (size, size.upper()) if name in defined), None)
        if found is None:
            complaints.append(f"{REFERENCE}: defines neither {size} nor {size.upper()}, which shapes.py sets")
        else:
            names[size] = found
    return [{"sizes": shape, "names": {size: names.get(size, size) for size in shape}} for shape in shapes]


def _check_formulas(task: dict[str, Any], shapes: list[dict[str, int]], complaints: list[str]) -> None:
    for key in ("flops", "bytes"):
        try:
            for shape in shapes:
                evaluate(task[key], shape)
        except ExpressionError as error:
            complaints.append(f"{TASK_FILE}.{key}_formula: {error}")


def _read_stress(directory: Path, name: str, complaints: list[str]) -> list[dict[str, Any]]:
    """Return the numeric stress cases of a problem, or none if the harness's file is not beside it."""
    path = directory.resolve().parents[1] / "src" / "eval" / "numeric_stress.py"
    if not path.is_file() or path.is_symlink():
        return []
    tree = parse(read_file(path), path.name)
    constants = {key: value for key in _assigned_names(tree) if (value := _literal_of(tree, key)) is not None}
    table = _assigned(tree, "_CASES")
    if not isinstance(table, ast.Dict):
        return []
    listed = [v for k, v in zip(table.keys, table.values, strict=True) if k is not None and _literal(k, {}) == name]
    calls = [call for value in listed if isinstance(value, ast.Tuple) for call in value.elts]
    cases = [_stress_case(call, constants, complaints) for call in calls[:MOST_STRESS_CASES]]
    return [case for case in cases if case is not None]


def _stress_case(call: ast.expr, constants: dict[str, Any], complaints: list[str]) -> dict[str, Any] | None:
    fields: dict[str, Any] = {}
    if isinstance(call, ast.Call):
        fields = {word.arg: _literal(word.value, constants) for word in call.keywords if word.arg}
        fields["name"] = fields.get("name") or (_literal(call.args[0], {}) if call.args else None)
    name, inputs, state = fields.get("name"), fields.get("input_scales") or {}, fields.get("state_scales") or {}
    sound = isinstance(name, str) and re.fullmatch(r"\w{1,60}", name) and isinstance(inputs, dict)
    if not (sound and isinstance(state, dict) and all(_is_number(v) for v in (*inputs.values(), *state.values()))):
        complaints.append(f"numeric_stress.py: a case that is not read: {ast.unparse(call)[:120]}")
        return None
    tolerance = _tolerances(fields.get("tolerance") or {}, complaints)
    scales = {str(int(position)): float(scale) for position, scale in inputs.items()}
    return {
        "name": name,
        "inputs": scales,
        "state": {str(k): float(v) for k, v in state.items()},
        "tolerance": tolerance,
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _read_peaks(directory: Path, hardware: list[str]) -> dict[str, Any] | None:
    """Return the name, TFLOP/s by key and GB/s that the benchmark divides by, or None if its file is missing."""
    place = directory.resolve().parents[1] / "src" / "hardware"
    for name in hardware[:1]:
        path = place / f"{name.lower()}.py"
        if re.fullmatch(r"\w{1,40}", name) and path.is_file() and not path.is_symlink():
            return _peaks(parse(read_file(path), path.name))
    return None


def _peaks(tree: ast.Module) -> dict[str, Any] | None:
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        words = {word.arg: _literal(word.value, {}) for word in call.keywords if word.arg}
        tflops, gb_s = words.get("peak_tflops_dense"), words.get("peak_bandwidth_gb_s")
        if isinstance(tflops, dict) and _is_number(gb_s) and all(map(_is_number, tflops.values())):
            return {"device": str(words.get("name", "")), "tflops": tflops, "gb_s": gb_s}
    return None


def _assigned_names(tree: ast.Module) -> list[str]:
    targets = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _assigned(tree: ast.Module, name: str) -> ast.expr | None:
    """Return what a module-level name is assigned, with or without an annotation."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and any(
            isinstance(target, ast.Name) and target.id == name for target in targets
        ):
            return node.value
    return None


def _literal_of(tree: ast.Module, name: str) -> Any:
    value = _assigned(tree, name)
    return None if value is None else _literal(value, {})


def _literal(node: ast.expr, constants: dict[str, Any]) -> Any:
    """Return the value of a literal or of the name of one, None for anything else."""
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None

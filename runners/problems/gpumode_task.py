"""Read a GPU MODE task directory: task.yml and the files it stages. Only at import; needs PyYAML.

The content becomes `task.json` in the bundle, so that a runner needs neither PyYAML nor the directory. The input is
hostile: sizes are limited, the safe loader accepts no anchors (no cycles, no alias bombs), no file may lie further
away than two directories up, and links are refused.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from runners.job import ProblemBundle
from runners.problems.base import ProblemError
from runners.problems.files import read_file
from runners.problems.reading import FieldReader

FORMAT = "gpumode"
TASK_FILE = "task.yml"
ENTRY = "task.json"
_MARKS = ("task.py", "reference.py")
# Limits the work of PyYAML on a hostile text.
TASK_BYTES = 64 << 10
TASK_DEPTH = 50
MOST_CASES = 200
MOST_FILES = 30
# Published tasks share files above their own directory.
LEVELS_UP = 2
_SUBMISSION = "@SUBMISSION@"
# Source and text only: everything in a bundle is stored and shown.
_SUFFIXES = {".py", ".cu", ".cuh", ".cpp", ".h", ".hpp", ".hip", ".txt", ".md"}
_RANKINGS = ("last", "mean", "geom")
_SCALARS = (str, int, float, bool, type(None))


def is_gpumode_problem(directory: Path) -> bool:
    """Return whether a directory holds a task file, or what stands beside one: its reading says what is missing."""
    return (directory / TASK_FILE).is_file() or all((directory / name).is_file() for name in _MARKS)


def read_gpumode(directory: Path) -> ProblemBundle:
    """Return the bundle of a task directory. Raises ProblemError with every fault found."""
    complaints: list[str] = []
    reader = FieldReader(load_yaml(read_file(directory / TASK_FILE)), TASK_FILE, complaints)
    task = _read_task(reader, directory.name)
    files = _read_files(reader, directory, complaints)
    task["templates"] = _read_templates(reader, directory, files, complaints)
    reader.rest()  # kernelbot's own settings: main, timeouts, gpus
    if complaints:
        raise ProblemError(complaints)
    files[ENTRY] = json.dumps(task, indent=1, sort_keys=True)
    return ProblemBundle(directory.name, FORMAT, ENTRY, files)


def load_yaml(text: str, file: str = TASK_FILE) -> Any:
    """Return plain data from YAML text. Raises ProblemError for anchors, custom tags, depth, size and syntax."""
    import yaml

    if len(text) > TASK_BYTES:
        raise ProblemError([f"{file}: {len(text)} characters; at most {TASK_BYTES} are read"])
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            # Depth is looked at before the rest is scanned: what PyYAML spends on a token grows with the depth.
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > TASK_DEPTH:
                raise ProblemError([f"{file}: {_line_of(event)}nested deeper than {TASK_DEPTH} levels"])
            if isinstance(event, yaml.AliasEvent):
                raise ProblemError([f"{file}: {_line_of(event)}aliases are not read"])
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        if isinstance(error, ProblemError):
            raise
        raise ProblemError([f"{file}: not YAML that we read: {' '.join(str(error).split())[:300]}"]) from error


def _line_of(event: Any) -> str:
    """Return `line 7: ` for an event on the seventh line, or an empty text for an event without a place."""
    return f"line {event.start_mark.line + 1}: " if event.start_mark else ""


def _read_task(reader: FieldReader, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "language": reader.choice("lang", ("py", "cu"), "py"),
        "description": reader.text("description", required=True),
        "ranking_by": reader.choice("ranking_by", _RANKINGS, "last"),
        "multi_gpu": reader.take("multi_gpu", bool, False),
        "tests": _read_cases(reader, "tests"),
        "benchmarks": _read_cases(reader, "benchmarks"),
    }


def _read_cases(reader: FieldReader, key: str) -> list[dict[str, Any]]:
    tables = reader.tables(key, required=True)
    if len(tables) > MOST_CASES:
        reader.complain(f"{len(tables)} cases; at most {MOST_CASES}", key)
    cases = []
    for table in tables[:MOST_CASES]:
        values = table.rest()
        for name, value in values.items():
            if not (isinstance(name, str) and name.isidentifier() and _is_plain(value)):
                table.complain("expected a number, a string or a list of these under an identifier", str(name)[:80])
        cases.append(values)
    return cases


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= 1000 and all(isinstance(item, _SCALARS) for item in value)
    return isinstance(value, _SCALARS)


def _read_files(reader: FieldReader, directory: Path, complaints: list[str]) -> dict[str, str]:
    tables = reader.tables("files", required=True)
    if len(tables) > MOST_FILES:
        reader.complain(f"{len(tables)} files; at most {MOST_FILES}", "files")
    files: dict[str, str] = {}
    for table in tables[:MOST_FILES]:
        name, source = table.text("name", required=True), table.text("source", required=True)
        table.close()
        if "/" in name or "\\" in name or name in ("", ".", "..", ENTRY):
            table.complain(f"{name!r} is not a plain file name", "name")
        elif source != _SUBMISSION:
            _read_named(directory, source, name, files, complaints)
    if "reference.py" not in files and not complaints:
        reader.complain("stages no reference.py", "files")
    return files


def _read_templates(
    reader: FieldReader, directory: Path, files: dict[str, str], complaints: list[str]
) -> dict[str, str]:
    """Return the path in the bundle by language label."""
    templates: dict[str, str] = {}
    for label, source in reader.table("templates").rest().items():
        path = f"templates/{PurePosixPath(str(source)).name}"
        if isinstance(source, str):
            _read_named(directory, source, path, files, complaints)
            templates[str(label)[:80]] = path
    return templates


def _read_named(directory: Path, source: str, name: str, files: dict[str, str], complaints: list[str]) -> None:
    path = PurePosixPath(source)
    ups = [part for part in path.parts if part == ".."]
    if path.is_absolute() or path.suffix not in _SUFFIXES or len(ups) > LEVELS_UP or "\0" in source:
        complaints.append(f"{TASK_FILE}: {source!r} is not a source file near this directory")
        return
    place = directory.resolve()
    # A link in between could lead out of the directory although the name does not.
    if not (place / source).resolve().is_relative_to(place.parents[min(LEVELS_UP, len(place.parents)) - 1]):
        complaints.append(f"{TASK_FILE}: {source!r} leads away from this directory")
        return
    try:
        files[name] = read_file(place / source, name=source)
    except ProblemError as error:
        complaints += error.complaints

"""Read a kernel from a file that was named on the command line."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from runners.job import Language, Limits, ProblemBundle, Source, TunableValue
from runners.problems import load
from runners.problems.filters import with_signature
from runners.targets import UnknownTarget, canonical
from runners.tunables import read_value

SUFFIXES = {
    ".cpp": Language.CPP,
    ".cc": Language.CPP,
    ".cxx": Language.CPP,
    ".hip": Language.HIP,
    ".cu": Language.CUDA,
    ".py": Language.PYTHON,
}
_MARKER = re.compile(r"^\s*(?://|#)\s*@language\s+(\w+)\s*$")
_TRITON = re.compile(r"^\s*(import triton|from triton)\b", re.MULTILINE)


class UsageError(ValueError):
    """The command line is wrong; the message says what to change."""


def read_source(path: Path) -> Source:
    """Read the kernel of a file. Raises UsageError.

    The language comes from a first line `// @language NAME`, else from the suffix. A Python file that imports triton
    is a Triton kernel.
    """
    try:
        data = path.read_bytes()
        text = data.decode()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start})") from error
    # The same limit as for jobs, so that the command accepts what a run would.
    if len(data) > Limits().source_bytes:
        raise UsageError(f"{path}: {len(data)} bytes; at most {Limits().source_bytes} are accepted")
    return Source(language_of(path, text), text)


def read_problem(name: str) -> ProblemBundle:
    """Read a shipped problem or one on disk. Raises ProblemError.

    A KernelBench file gets its C signature, which runs the file's code in a process of its own.
    """
    return with_signature(load(name))


def language_of(path: Path, text: str) -> Language:
    """Return the language of a file. Raises UsageError if neither the first line nor the suffix tells."""
    if marker := _MARKER.match(text.partition("\n")[0]):
        try:
            return Language(marker[1])
        except ValueError:
            raise UsageError(f"{path}: {marker[1]} is not one of {', '.join(Language)}") from None
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path}: name the language by a suffix ({', '.join(SUFFIXES)}) or a first line @language")
    language = SUFFIXES[path.suffix]
    return Language.TRITON if language is Language.PYTHON and _TRITON.search(text) else language


def read_tunables(assignments: list[str]) -> dict[str, TunableValue]:
    """Parse assignments `NAME=VALUE`. Raises UsageError."""
    chosen: dict[str, TunableValue] = {}
    for assignment in assignments:
        name, equals, word = assignment.partition("=")
        if not name or not equals:
            raise UsageError(f"--tunable {assignment}: write NAME=VALUE")
        try:
            chosen[name] = read_value(word)
        except ValueError as error:
            raise UsageError(f"--tunable {name}: {error}") from error
    return chosen


def target_name(name: str) -> str:
    """Return the key of a target or product's name, as argparse's `type`. Raises ArgumentTypeError."""
    try:
        return canonical(name)
    except UnknownTarget as error:
        raise argparse.ArgumentTypeError(str(error)) from None

"""Read what was named on the command line: kernels, problems, tunables, targets."""

from __future__ import annotations

import argparse

from runners.job import ProblemBundle, TunableValue
from runners.problems import load
from runners.problems.filters import with_signature
from runners.targets import UnknownTarget, canonical
from runners.tunables import read_value
from runners.verbs.errors import RefusedError as UsageError
from runners.verbs.sources import SUFFIXES, language_of, read_source

__all__ = [
    "SUFFIXES",
    "UsageError",
    "language_of",
    "read_problem",
    "read_source",
    "read_tunables",
    "target_name",
]


def read_problem(name: str) -> ProblemBundle:
    """Read a shipped problem or one on disk. Raises ProblemError.

    A KernelBench file gets its C signature, which runs the file's code in a process of its own.
    """
    return with_signature(load(name))


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

"""Run a script as `python script.py` would, or one function of it."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class ProgramError(ValueError):
    """Report that a program of the user cannot be run like this. The message says what to change."""


# The name under which a script is imported to call one of its functions.
IMPORTED = "captured_program"


def script_runner(script: Path, arguments: Sequence[str], function: str = "") -> Callable[[], Any]:
    """Return what runs the program: the whole script, or a function of it after the script was imported.

    With a function, the script is imported first, so that what it prepares at its top is no part of the work. Raises
    ProgramError for a script that does not exist, ends by itself or fails.
    """
    if not script.is_file():
        raise ProgramError(f"{script}: no such file")
    if not function:
        return lambda: _run(script, arguments, "__main__")
    scope = _run(script, arguments, IMPORTED)
    if not callable(scope.get(function)):
        raise ProgramError(f"{script} defines no function {function}")
    call: Callable[[], Any] = scope[function]
    return call


def _run(script: Path, arguments: Sequence[str], name: str) -> dict[str, Any]:
    with _as_started(script, arguments):
        try:
            return runpy.run_path(str(script), run_name=name)
        except SystemExit as error:
            if error.code not in (None, 0):
                raise ProgramError(
                    f"{script} ended with {error.code!r}. If it needs arguments, give them after --"
                ) from error
            return {}


@contextmanager
def _as_started(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Set the program's arguments and let it import its neighbours."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path

"""Run the reference of a problem once in a process, however many tests upload or import the same problem."""

from __future__ import annotations

from typing import Any

from runners import wire
from runners.job import ProblemBundle
from runners.problems.filters import Examination, examine

_examined: dict[str, Examination] = {}


def examine_once(bundle: ProblemBundle, *limits: Any, **named: Any) -> Examination:
    """Do what `examine` does, which starts a sandbox that imports torch, at the first call for a bundle and limits."""
    like = repr((wire.dumps(bundle), limits, sorted(named.items())))
    if like not in _examined:
        _examined[like] = examine(bundle, *limits, **named)
    return _examined[like]

"""Choose where a submission goes: leaderboard, GPU and mode, from the run's settings or from problem and target."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

MODES = ("test", "benchmark", "leaderboard")
# KernelBot's names of our targets. Its names are case-sensitive.
GPUS = {
    "gfx942": "MI300",
    "gfx950": "MI355X",
    "sm_80": "A100",
    "sm_90": "H100",
    "sm_100": "B200",
}
LEADERBOARDS_VARIABLE = "KERNELBOT_LEADERBOARDS"
LEADERBOARDS = {"fp8_block_gemm": "amd-fp8-mm"}
# The name becomes a part of an address, so no slash and no dot at its start.
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,119}$")


class OrderError(ValueError):
    """Report that the settings do not name a queue to which a submission could go."""


@dataclass(frozen=True)
class Order:
    """Name one of KernelBot's queues. `mode` test checks, benchmark also times, leaderboard ranks with a secret run."""

    leaderboard: str
    gpu: str
    mode: str


def read_order(settings: dict[str, Any], *, target: str, problem: str) -> Order:
    """Read the settings `leaderboard`, `gpu` and `mode`, each optional. Raises OrderError.

    The defaults are the problem's leaderboard (see `leaderboard_of`), the target's GPU, and `benchmark`.
    """
    if unknown := sorted(set(settings) - {"leaderboard", "gpu", "mode"}):
        raise OrderError(f"KernelBot has no setting {unknown[0]!r}; it has leaderboard, gpu and mode")
    order = Order(
        str(settings.get("leaderboard") or leaderboard_of(problem)),
        str(settings.get("gpu") or GPUS.get(target, "")),
        str(settings.get("mode") or "benchmark"),
    )
    if not order.gpu:
        raise OrderError(f"KernelBot's name of the GPU behind {target} is not known: set gpu")
    for name in (order.leaderboard, order.gpu):
        if not _NAME.match(name):
            raise OrderError(f"{name!r} is no name that KernelBot would know")
    if order.mode not in MODES:
        raise OrderError(f"{order.mode!r} is not one of {', '.join(MODES)}")
    return order


def leaderboard_of(problem: str) -> str:
    """Return the leaderboard that judges a problem.

    It comes from KERNELBOT_LEADERBOARDS (`problem=leaderboard,…`), from the shipped ones, or is the problem's name in
    the spelling of leaderboards.
    """
    pairs = (word.partition("=") for word in os.environ.get(LEADERBOARDS_VARIABLE, "").split(","))
    named = {problem.strip(): board.strip() for problem, _, board in pairs}
    return named.get(problem) or LEADERBOARDS.get(problem) or problem.replace("_", "-")

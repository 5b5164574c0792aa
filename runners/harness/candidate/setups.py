"""Reading what the oracle has left for Python candidates (`runners.harness.setups` writes it).

A setup is NAME.json beside NAME.bin, which holds the tensors' bytes; modules that candidates may import lie in the
folder MODULES.
"""

from __future__ import annotations

import json
import mmap
import sys
from pathlib import Path
from typing import Any

from .entry import Setup
from .structure import arguments_of
from .tensors import HostArena, tensor_at

MODULES = "modules"


def make_importable(folder: str) -> None:
    """Let the candidate import the modules of its problem."""
    if folder:
        sys.path.append(str(Path(folder, MODULES)))


def read(folder: str, name: str | None) -> Setup:
    """One setup; None: nothing but the problem's entry point is given."""
    if name is None:
        return Setup()
    stored = json.loads(Path(folder, f"{name}.json").read_text())
    with Path(folder, f"{name}.bin").open("rb") as file:
        arena = HostArena(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    init = {key: _value(arena, value) for key, value in stored["init"].items()}
    return Setup(
        stored["wanted"],
        arguments_of(stored["structure"], init),
        {key: _value(arena, value) for key, value in stored["state"].items()},
        stored["weight_seed"],
        stored["call_seed"],
    )


def _value(arena: HostArena, value: dict[str, Any]) -> Any:
    return value["plain"] if "plain" in value else tensor_at(arena, value, value["offset"])

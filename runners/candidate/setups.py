"""Read what the oracle wrote for Python candidates (see `runners.harness.oracle.setups`).

A setup is NAME.json beside NAME.bin, which holds the tensors' bytes; modules that candidates may import lie in the
folder MODULES.
"""

from __future__ import annotations

import json
import mmap
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from .entry import Setup
from .structure import arguments_of
from .tensors import HostArena, tensor_at

MODULES = "modules"


def make_importable(folder: str) -> None:
    """Let the candidate import the modules of its problem."""
    if folder:
        # Appended, so that a problem's module can't hide one of the standard library.
        sys.path.append(str(Path(folder, MODULES)))


def read(folder: str, name: str | None) -> Setup:
    """Return one setup; without a name, an empty one with the default entry point.

    Weights are views of a read-only mapping: a private writable one of several GiB would count as this process's own
    memory. Constructor arguments are copies, because the candidate may write to them.
    """
    if name is None:
        return Setup()
    stored = json.loads(Path(folder, f"{name}.json").read_text())
    with Path(folder, f"{name}.bin").open("rb") as file:
        arena = HostArena(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch: "the given buffer is not writable"
        init = {key: _copied(_value(arena, value)) for key, value in stored["init"].items()}
        state = {key: _value(arena, value) for key, value in stored["state"].items()}
    return Setup(
        stored["wanted"],
        arguments_of(stored["structure"], init),
        state,
        stored["weight_seed"],
        stored["call_seed"],
        stored["strict"],
    )


def _value(arena: HostArena, value: dict[str, Any]) -> Any:
    return value["plain"] if "plain" in value else tensor_at(arena, value, value["offset"])


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value

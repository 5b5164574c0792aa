"""What a Python candidate is given once, as files that it may read: written by the oracle, which alone runs the
problem's code; read in the sandbox by `runners.harness.candidate.setups`.

Nothing of it is secret (see `CandidateSetup`). The referee passes paths on and looks at none of it.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any, BinaryIO

import torch

from runners.harness.candidate.setups import MODULES
from runners.problems.base import CandidateSetup

ALIGNMENT_BYTES = 64


def write_setup(folder: Path, name: str, setup: CandidateSetup, wanted: str) -> None:
    """Leave a setup in a folder as NAME.json and NAME.bin, and its modules beside them."""
    (folder / MODULES).mkdir(exist_ok=True)
    for module, text in setup.files.items():
        (folder / MODULES / module).write_text(text)
    with (folder / f"{name}.bin").open("wb") as file:
        stored = {
            "wanted": wanted,
            "structure": setup.init.structure,
            "init": {key: _stored(file, value) for key, value in setup.init.values.items()},
            "state": {key: _stored(file, value) for key, value in setup.state.items()},
            "weight_seed": setup.weight_seed,
            "call_seed": setup.call_seed,
        }
        file.write(b"\0")  # an empty file cannot be mapped
    (folder / f"{name}.json").write_text(json.dumps(stored))


def _stored(file: BinaryIO, value: Any) -> dict[str, Any]:
    """A plain value as it is; a tensor's bytes, dense, at the end of the file, and where they lie."""
    if not isinstance(value, torch.Tensor):
        return {"plain": value}
    dense = value.detach().cpu().contiguous()
    file.write(b"\0" * (-file.tell() % ALIGNMENT_BYTES))
    offset = file.tell()
    file.write(ctypes.string_at(dense.data_ptr(), dense.nbytes) if dense.nbytes else b"")
    dtype = str(dense.dtype).removeprefix("torch.")
    return {"dtype": dtype, "shape": list(dense.shape), "strides": list(dense.stride()), "offset": offset}

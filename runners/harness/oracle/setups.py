"""Write what a Python candidate is given once as files that it may read.

The oracle, which alone runs the problem's code, writes them; `runners.candidate.setups` reads them in the sandbox.
Nothing in them is secret (see `CandidateSetup`). The referee passes the paths on and reads none of the files.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch

from runners.candidate.setups import MODULES
from runners.problems.base import CandidateSetup

# A cache line, which is more than any dtype needs.
ALIGNMENT_BYTES = 64
CHUNK_BYTES = 64 << 20


def write_setup(folder: Path, name: str, setup: CandidateSetup, wanted: str) -> None:
    """Write a setup into a folder as NAME.json and NAME.bin, and its modules beside them."""
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
            "strict": setup.strict,
        }
        file.write(b"\0")  # an empty file cannot be mapped
    (folder / f"{name}.json").write_text(json.dumps(stored))


def _stored(file: BinaryIO, value: Any) -> dict[str, Any]:
    """Return a plain value as it is. Append a tensor's bytes, dense, to the file and return where they are."""
    if not isinstance(value, torch.Tensor):
        return {"plain": value}
    dense = value.detach().cpu().contiguous()
    file.write(b"\0" * (-file.tell() % ALIGNMENT_BYTES))
    offset = file.tell()
    for chunk in chunks_of(dense):
        file.write(chunk)
    dtype = str(dense.dtype).removeprefix("torch.")
    return {"dtype": dtype, "shape": list(dense.shape), "strides": list(dense.stride()), "offset": offset}


def chunks_of(dense: torch.Tensor, chunk_bytes: int = CHUNK_BYTES) -> Iterator[memoryview]:
    """Yield the bytes of a contiguous CPU tensor of any dtype, in order and without a copy.

    `ctypes.string_at` takes its size as a C int and so ends at 2 GiB; an array type takes a `Py_ssize_t`.
    """
    if dense.nbytes == 0:
        return
    whole = memoryview((ctypes.c_char * dense.nbytes).from_address(dense.data_ptr())).cast("B")
    for start in range(0, dense.nbytes, chunk_bytes):
        yield whole[start : start + chunk_bytes]

"""Write what a Python candidate is given once as files that it may read.

The oracle, which alone runs the problem's code, writes them into a parcel; `runners.candidate.setups` reads them in the
candidate's sandbox. Nothing in them is secret (see `CandidateSetup`). The referee unpacks the parcel, passes the paths
on and reads none of the files.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import torch

from runners.candidate.setups import MODULES
from runners.harness.oracle.parcel import ALIGNMENT_BYTES, Parcel
from runners.problems.base import CandidateSetup

CHUNK_BYTES = 64 << 20


def write_setup(parcel: Parcel, name: str, setup: CandidateSetup, wanted: str) -> None:
    """Write a setup into a parcel as NAME.json and NAME.bin, and its modules beside them."""
    known = {entry[0] for entry in parcel.entries}
    for module, text in setup.files.items():
        if f"{MODULES}/{module}" not in known:
            parcel.add(f"{MODULES}/{module}", text.encode())
    with parcel.entry(f"{name}.bin") as file:
        start = file.tell()
        stored = {
            "wanted": wanted,
            "structure": setup.init.structure,
            "init": {key: _stored(file, start, value) for key, value in setup.init.values.items()},
            "state": {key: _stored(file, start, value) for key, value in setup.state.items()},
            "weight_seed": setup.weight_seed,
            "call_seed": setup.call_seed,
            "strict": setup.strict,
        }
        file.write(b"\0")  # an empty file cannot be mapped
    parcel.add(f"{name}.json", json.dumps(stored).encode())


def _stored(file: BinaryIO, start: int, value: Any) -> dict[str, Any]:
    """Return a plain value as it is. Append a tensor's bytes, dense, to the file and return where they are.

    The place is counted from `start`, which is aligned.
    """
    if not isinstance(value, torch.Tensor):
        return {"plain": value}
    dense = value.detach().cpu().contiguous()
    file.write(b"\0" * (-file.tell() % ALIGNMENT_BYTES))
    offset = file.tell() - start
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

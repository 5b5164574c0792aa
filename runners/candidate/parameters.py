"""Map the parameters of a kernel with a C signature: the state dict that the oracle left for a case.

The file is the one from which Python candidates load their weights (see `setups`). It is mapped read-only, so that a
kernel that writes to a parameter ends with a segmentation fault, and with every page in place, so that no page fault
falls into the timed region. Standard library only, like everything that serves a C function.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
from pathlib import Path
from typing import Any

# Python's mmap gives no address of a read-only mapping, so the C library is called directly.
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


class Parameters:
    """Hold the parameters of one case. `offsets` is by state dict name; `base` is the address of the first byte
    here."""

    def __init__(self, folder: str, setup: str) -> None:
        stored = json.loads(Path(folder, f"{setup}.json").read_text())
        self.offsets: dict[str, int] = {name: value["offset"] for name, value in stored["state"].items()}
        path = Path(folder, f"{setup}.bin")
        self.size_bytes = path.stat().st_size
        self.base = _mapped(path, self.size_bytes)

    def address(self, name: str) -> int:
        """Return a parameter's address. Raises KeyError for a name that the state dict does not have."""
        return self.base + self.offsets[name]

    def close(self) -> None:
        """Unmap the file. Addresses that were returned before are no longer valid."""
        _libc.munmap(self.base, self.size_bytes)


def opened(folder: str, case: dict[str, Any]) -> Parameters | None:
    """Map the parameters of the case that the referee describes, or return None if its signature has none."""
    wanted = any("parameter" in slot for slot in case["signature"])
    return Parameters(folder, case["setup"]) if wanted else None


def _mapped(path: Path, size_bytes: int) -> int:
    """Map a file's content and return its address. Raises OSError."""
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        address = _libc.mmap(None, size_bytes, mmap.PROT_READ, flags, descriptor, 0)
    finally:
        os.close(descriptor)
    if address == _FAILED:
        raise OSError(ctypes.get_errno(), "cannot map the parameters")
    return int(address)

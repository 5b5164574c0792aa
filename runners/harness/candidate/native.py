"""Calling a shared library with a C signature on buffers of the arena."""

from __future__ import annotations

import ctypes
import time
from typing import Any

clock = time.perf_counter_ns

C_TYPES = {
    "int8": ctypes.c_int8,
    "int16": ctypes.c_int16,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "uint8": ctypes.c_uint8,
    "bool": ctypes.c_bool,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}


class NativeCallee:
    """A function of a shared library. `base` is the address of the arena in this process; `owner` keeps it mapped."""

    def __init__(self, path: str, symbol: str, base: int, owner: object = None) -> None:
        self._function = getattr(ctypes.CDLL(path), symbol)
        self._function.restype = None
        self._base, self._owner = base, owner
        self._signature: list[dict[str, Any]] = []

    def set_case(self, case: dict[str, Any]) -> None:
        """Take the argument order of the coming calls."""
        self._signature = case["signature"]

    def prepare(self, call: dict[str, list[float]]) -> list[object]:
        """Turn one call's offsets and numbers into C arguments, before the clock starts."""
        return [self._argument(slot, call) for slot in self._signature]

    def _argument(self, slot: dict[str, Any], call: dict[str, list[float]]) -> object:
        value = call[slot["from"]][slot["index"]] if "from" in slot else slot["value"]
        if slot["kind"] == "pointer":
            return ctypes.c_void_p(self._base + value)
        return C_TYPES[slot["kind"]](value)

    def run(self, arguments: list[object]) -> int:
        """One call; its duration in nanoseconds by this process's clock."""
        function = self._function
        start = clock()
        function(*arguments)
        return clock() - start

    def finish(self, arguments: list[object], call: dict[str, list[float]]) -> None:
        """Outputs are written in place: nothing to do."""

"""Call a shared library with a C signature on buffers of the arena."""

from __future__ import annotations

import ctypes
import time
from typing import Any

from . import parameters

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
    """Call a function of a shared library.

    `base` is the address of the arena in this process; `owner` keeps it mapped. `setups` is the folder of the cases'
    parameters, "" if there are none.
    """

    def __init__(self, path: str, symbol: str, base: int, owner: object = None, setups: str = "") -> None:
        self._function = getattr(ctypes.CDLL(path), symbol)
        self._function.restype = None
        self._base, self._owner = base, owner
        self._signature: list[dict[str, Any]] = []
        self._setups, self._setup = setups, ""
        self._parameters: Any = None

    def set_case(self, case: dict[str, Any]) -> None:
        """Take the argument order of the coming calls, and bring the case's parameters into place once."""
        self._signature = case["signature"]
        if self._setup == case.get("setup", ""):
            return
        if self._parameters is not None:
            self._parameters.close()
        self._setup = case.get("setup", "")
        self._parameters = self._opened(case)

    def _opened(self, case: dict[str, Any]) -> Any:
        """Bring the case's parameters to where the kernel reads them, or return None if its signature has none."""
        return parameters.opened(self._setups, case)

    def prepare(self, call: dict[str, list[float]]) -> list[object]:
        """Turn one call's offsets and numbers into C arguments, before the clock starts."""
        return [self._argument(slot, call) for slot in self._signature]

    def _argument(self, slot: dict[str, Any], call: dict[str, list[float]]) -> object:
        if "parameter" in slot:
            return ctypes.c_void_p(self._parameters.address(slot["parameter"]))
        value = call[slot["from"]][slot["index"]] if "from" in slot else slot["value"]
        if slot["kind"] == "pointer":
            return ctypes.c_void_p(self._base + value)
        return C_TYPES[slot["kind"]](value)

    def run(self, arguments: list[object]) -> int:
        """Make one call, and return its duration in ns by this process's clock."""
        # A local name saves an attribute lookup within the timed region.
        function = self._function
        start = clock()
        function(*arguments)
        return clock() - start

    def finish(self, arguments: list[object], call: dict[str, list[float]]) -> None:
        """Do nothing, because outputs are written in place."""

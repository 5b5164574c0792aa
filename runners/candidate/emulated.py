"""Call a library whose device is emulated on buffers of the arena, with the buffers' bounds made known to it."""

from __future__ import annotations

import ctypes
import re
from typing import Any

from .native import NativeCallee

_DIGITS = re.compile(r"\d+")


class EmulatedCallee(NativeCallee):
    """Call a function with a trailing stream, each time under another schedule of its threads."""

    def __init__(self, path: str, symbol: str, base: int, owner: object = None, setups: str = "") -> None:
        super().__init__(path, symbol, base, owner, setups)
        library = ctypes.CDLL(path)
        self._begin, self._add = library.emu_begin_call, library.emu_add_buffer
        self._case: dict[str, Any] = {}
        self._calls = 0

    def set_case(self, case: dict[str, Any]) -> None:
        """Take the argument order of the coming calls, and the layouts of their buffers."""
        super().set_case(case)
        self._case = case

    def prepare(self, call: dict[str, list[float]]) -> list[object]:
        """Turn one call's offsets and numbers into C arguments; the stream is the default one."""
        return [*super().prepare(call), ctypes.c_void_p(None)]

    def run(self, arguments: list[object]) -> int:
        """Make one call, and return its duration in ns by this process's clock."""
        self._begin(ctypes.c_uint(self._calls))
        self._calls += 1
        for slot, argument in zip(self._signature, arguments, strict=False):
            if slot["kind"] == "pointer":
                self._add_buffer(slot, argument)
        return super().run(arguments)

    def _add_buffer(self, slot: dict[str, Any], address: object) -> None:
        if "parameter" in slot:
            name, first = slot["parameter"], self._parameters.base
            # A mapping ends behind the last parameter; how long each one is, the library need not know.
            size = first + self._parameters.size_bytes - self._parameters.address(slot["parameter"])
        else:
            spec = self._case[slot["from"]][slot["index"]]
            name = spec.get("name") or f"{slot['from'].removesuffix('s')} {slot['index']}"
            size = size_bytes(spec)
        self._add(address, ctypes.c_size_t(size), str(name).encode())


def size_bytes(spec: dict[str, Any]) -> int:
    """Return the bytes from a tensor's first element to its last, from `dtype`, `shape` and `strides` in elements."""
    if 0 in spec["shape"]:
        return 0
    # Every dtype's name begins with its width in bits, `bool` excepted: float8_e4m3fnuz, bfloat16, int64.
    digits = _DIGITS.search(spec["dtype"])
    width = int(digits[0]) // 8 if digits else 1
    last = sum((n - 1) * int(step) for n, step in zip(spec["shape"], spec["strides"], strict=True))
    return width * (1 + int(last))

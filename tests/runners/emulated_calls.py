"""Call functions of an emulated library, each in a process of its own, since a fault of a kernel ends its process.

`python emulated_calls.py LIBRARY FUNCTION…` calls softmax kernels `FUNCTION(x, out, rows, columns, stream)` on the
shapes of the problem `softmax_rows`, each shape under the three schedules of the emulation. It prints one JSON object:
for every function whether all calls ended, whether all results were right, and what the process wrote. Standard library
only: a process that has torch costs more than all the calls.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

SHAPES = ((1, 1), (7, 33))
SCHEDULES = 3
RIGHT, WRONG = 0, 1


def softmax(x: list[float], rows: int, columns: int) -> list[float]:
    """Return the softmax of each row."""
    made = []
    for row in range(rows):
        powers = [math.exp(value) for value in x[row * columns : (row + 1) * columns]]
        made += [power / sum(powers) for power in powers]
    return made


def is_right(library: ctypes.CDLL, function: str, rows: int, columns: int, schedule: int) -> bool:
    """Call a function once and return whether it computed the softmax. A fault ends the process."""
    count = rows * columns
    draw = random.Random(count)
    x = [as_single(draw.uniform(-2, 2)) for _ in range(count)]
    given, out = (ctypes.c_float * count)(*x), (ctypes.c_float * count)()
    library.emu_begin_call(ctypes.c_uint(schedule))
    for name, buffer in (("input 0", given), ("output 0", out)):
        library.emu_add_buffer(buffer, ctypes.c_size_t(ctypes.sizeof(buffer)), name.encode())
    library[function](given, out, ctypes.c_int64(rows), ctypes.c_int64(columns), None)
    wanted = softmax(x, rows, columns)
    return all(abs(one - other) <= 1e-5 for one, other in zip(out, wanted, strict=True))


def as_single(value: float) -> float:
    """Return the nearest number in single precision."""
    return float(ctypes.c_float(value).value)


def called(path: str, function: str) -> dict[str, Any]:
    """Make all calls of one function in a fork, and return how they ended."""
    with tempfile.TemporaryFile() as written:
        sys.stdout.flush()
        if not (pid := os.fork()):
            code = 2
            try:
                for stream in (1, 2):
                    os.dup2(written.fileno(), stream)
                library = ctypes.CDLL(path)
                calls = [(rows, columns, number) for rows, columns in SHAPES for number in range(SCHEDULES)]
                # All of them are made, also behind one that is wrong.
                verdicts = [is_right(library, function, *call) for call in calls]
                code = RIGHT if all(verdicts) else WRONG
                library.fflush(None)
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        written.seek(0)
        return {
            "ended": code in (RIGHT, WRONG),
            "right": code == RIGHT,
            "log": written.read().decode(errors="replace"),
        }


if __name__ == "__main__":
    print(json.dumps({function: called(str(Path(sys.argv[1])), function) for function in sys.argv[2:]}))

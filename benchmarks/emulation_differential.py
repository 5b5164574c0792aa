"""Compare the emulation with an NVIDIA GPU on the kernels of `emulation_kernels`.

    python -m benchmarks.emulation_differential emulate outputs.json   # needs clang, no GPU
    python3 benchmarks/emulation_differential.py compare outputs.json  # needs nvcc, torch and a GPU, not the site

The first command writes what the emulated kernels compute on inputs that both sides make alike. The second compiles the
same texts with nvcc, runs them and compares: integers bit for bit, floats within each kernel's tolerance (0: bit for
bit). It prints a table and returns 1 where anything differs.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.emulation_kernels import COUNT, KERNELS, Kernel, all_of_them

SEED = 20261122
Outputs = dict[str, list[float] | list[int]]


def inputs() -> tuple[list[float], list[int]]:
    """Return the floats and integers on which every kernel computes; the floats are exact in single precision."""
    draw = random.Random(SEED)
    floats = [struct.unpack("f", struct.pack("f", draw.uniform(-1, 1)))[0] for _ in range(COUNT)]
    return floats, [draw.randrange(COUNT) for _ in range(COUNT)]


def emulated(target: str) -> dict[str, Outputs]:
    """Return what each kernel computes in emulation, in a process of their own, since a fault ends it.

    Raises RuntimeError with what the emulation says of a fault, NotCovered for what it lacks.
    """
    from runners import emulation
    from runners.backends import BuildRequest
    from runners.job import Language, Limits, Source

    language = Language.HIP if target.startswith("gfx") else Language.CUDA
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        source = Source(language, all_of_them())
        request = BuildRequest(source, f"run_{KERNELS[0].name}", target, Path(folder), Limits())
        library = emulation.build(request).loadable
        command = [sys.executable, __file__, "call", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-400:])
    outputs: dict[str, Outputs] = json.loads(done.stdout)
    return outputs


def call(path: str) -> dict[str, Outputs]:
    """Call the kernels of an emulated library. The name of each is printed first, so that a fault has one."""
    library = ctypes.CDLL(path)
    found = {}
    for kernel in KERNELS:
        print(kernel.name, file=sys.stderr, flush=True)
        found[kernel.name] = outputs_of(library, kernel)
    return found


def outputs_of(library: ctypes.CDLL, kernel: Kernel) -> Outputs:
    """Call one kernel under three schedules, which must agree; return the outputs. Raises RuntimeError."""
    floats, integers = inputs()
    found: list[Outputs] = []
    for number in range(3):
        x, y = (ctypes.c_float * COUNT)(*floats), (ctypes.c_int * COUNT)(*integers)
        out, words = (ctypes.c_float * COUNT)(), (ctypes.c_int * COUNT)()
        library.emu_begin_call(number)
        for name, buffer in (("x", x), ("y", y), ("out", out), ("words", words)):
            library.emu_add_buffer(buffer, ctypes.c_size_t(ctypes.sizeof(buffer)), name.encode())
        library[f"run_{kernel.name}"](x, y, out, words, ctypes.c_int(COUNT), None)
        found.append({"out": list(out), "words": list(words)})
    # As text, since a NaN equals nothing.
    if any(json.dumps(other) != json.dumps(found[0]) for other in found):
        raise RuntimeError(f"{kernel.name}: the schedules of the emulation disagree")
    return found[0]


def on_gpu(kernel: Kernel, folder: Path) -> Outputs:
    """Compile a kernel with nvcc, run it on the first GPU, and return its outputs."""
    import torch

    source, library = folder / f"{kernel.name}.cu", folder / f"{kernel.name}.so"
    source.write_text(kernel.text)
    # The emulation contracts nothing to fused operations that the text does not ask for.
    flags = ["-O3", "-std=c++17", "-arch=native", "--fmad=false", "--shared", "-Xcompiler", "-fPIC"]
    subprocess.run(["nvcc", *flags, str(source), "-o", str(library)], check=True)
    floats, integers = inputs()
    x, y = torch.tensor(floats, device="cuda"), torch.tensor(integers, dtype=torch.int32, device="cuda")
    out, words = torch.zeros_like(x), torch.zeros_like(y)
    torch.cuda.synchronize()
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y, out, words)]
    ctypes.CDLL(str(library)).run(*pointers, ctypes.c_int(COUNT), None)
    torch.cuda.synchronize()
    return {"out": out.tolist(), "words": words.tolist()}


def difference(kernel: Kernel, one: Outputs, other: Outputs) -> str:
    """Return what differs in words, empty if nothing does beyond the kernel's tolerance."""
    if one["words"] != other["words"]:
        return "integers differ"
    pairs = list(zip(one["out"], other["out"], strict=True))
    # Infinity and NaN, in which no kernel here should end, count as different unless they are the same text.
    worst = max(0.0 if repr(a) == repr(b) else abs(a - b) / max(abs(a), abs(b), 1e-30) for a, b in pairs)
    return "" if worst <= kernel.tolerance else f"floats differ by {worst:.3g} relatively"


def compare(stored: dict[str, Any]) -> int:
    """Print a row for each kernel. Return 1 if any differs from the GPU."""
    failed = 0
    print("| kernel | tolerance | GPU and emulation |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kernel in KERNELS:
            found = difference(kernel, on_gpu(kernel, Path(folder)), stored[kernel.name])
            failed += bool(found)
            print(f"| {kernel.name} | {kernel.tolerance or 'bits'} | {found or 'agree'} |", flush=True)
    return 1 if failed else 0


def main() -> int:
    """Run one side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("side", choices=("emulate", "compare", "call"))
    parser.add_argument("file", help="the outputs of the emulation; for `call`, a library")
    parser.add_argument("--target", default="sm_90", help="what is emulated: sm_90 or gfx942")
    arguments = parser.parse_args()
    if arguments.side == "call":
        print(json.dumps(call(arguments.file)))
        return 0
    if arguments.side == "compare":
        return compare(json.loads(Path(arguments.file).read_text()))
    Path(arguments.file).write_text(json.dumps(emulated(arguments.target)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Compile the configurations of a recorded tuning space for a GPU, and write what their machine code tells.

    python -m benchmarks.landscape_features --landscape FILE --kernel FILE --arch gfx90a --out DIR
        [--ignore read_only] [--alike tile_size_x,tile_size_y] [--limit 4] [--include DIR] [--bare] [--workers 2]
        [--entry NAME]

FILE is a Kernel Tuner cache file, whose parameters become macros; the answer lies in DIR under its name, for
`python -m benchmarks.search --features DIR`. No GPU is needed. AMD's architectures (`gfx…`) are compiled by clang,
NVIDIA's (`sm_…`) from CUDA by nvcc, whose machine code is read with cuobjdump. Parameters of `--ignore` do not change
the code, and configurations that agree in those of `--alike` share one build. A build that takes more processor seconds
than `--limit` leaves its configurations without features. What was built before is not built again. `--bare` brings
neither headers nor device libraries of ROCm, for kernels whose `--include` has all that they use.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.search import Landscape
from optimizer.search.space import Key
from runners.backends.cuda import cuobjdump, nvcc
from runners.backends.hip import device_compiler
from runners.backends.resources import from_amdgcn, from_ptxas
from runners.backends.rocm import rocm_directory
from runners.errors import InfraFailure
from runners.job import KernelResources
from runners.static_features.figures import figures_of

Figures = dict[str, float]

WRITE_S = 30.0  # seconds between two states of the answer on disk, which takes seconds to write where it is large


@dataclass(frozen=True)
class Compiler:
    """Hold how a configuration is compiled."""

    kernel: Path
    arch: str
    include: Sequence[Path]
    limit_s: int
    bare: bool = False
    entry: str = ""

    def figures(self, macros: Mapping[str, Any]) -> Figures | None:
        """Return features and resources of the kernel, or None where it did not compile within the limit.

        Without `entry`, a file must have one kernel alone. Raises ValueError.
        """
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "kernel.out"
            words = [*self._command, *(f"-D{name}={value}" for name, value in macros.items()), "-o", str(out)]
            done = _ran(words, preexec_fn=partial(_limit, self.limit_s))
            kernels = self._read(out, done.stderr) if done.returncode == 0 else []
        # A build that a signal ended has reached its limit; any other failure is worth reading.
        if done.returncode > 0:
            print(done.stderr[:400], file=sys.stderr)
        return self.chosen(kernels) if kernels else None

    def _read(self, built: Path, log: str) -> list[KernelResources]:
        if not self._is_nvidia:
            return from_amdgcn(built.read_text())
        tool = cuobjdump()
        if tool is None:
            raise InfraFailure("no cuobjdump: install the CUDA toolkit or Triton")
        env = {**os.environ, "PATH": f"{tool[1]}:{os.environ['PATH']}"}
        return from_ptxas(log, _ran([tool[0], "-sass", str(built)], env=env).stdout)

    def chosen(self, kernels: Sequence[KernelResources]) -> Figures:
        """Return features and resources of the kernel that `entry` names. Raises ValueError."""
        found = [one for one in kernels if self.entry in one.name]
        if len(found) != 1:
            raise ValueError(
                f"--entry {self.entry!r} names {len(found)} of {', '.join(one.name for one in kernels)}"
            )
        return figures_of(found[0])

    @property
    def _is_nvidia(self) -> bool:
        return self.arch.startswith("sm_")

    @property
    def _command(self) -> list[str]:
        if self._is_nvidia:
            where = [f"-I{folder}" for folder in self.include]
            flags = ["-x", "cu", f"-arch={self.arch}", "-cubin", "-O3", "-w", "-Xptxas", "-v"]
            return [nvcc(), *flags, *where, str(self.kernel)]
        flags = ["-x", "hip", f"--offload-arch={self.arch}", "--cuda-device-only", "-O3", "-w", "-S"]
        libraries = ["-nogpulib", "-nogpuinc"] if self.bare else [f"--rocm-path={rocm_directory()}"]
        where = [*libraries, *(f"-I{folder}" for folder in self.include)]
        return [device_compiler("gfx942"), *flags, *where, str(self.kernel)]


def _ran(words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a compiler, whose messages may hold any bytes."""
    return subprocess.run(words, capture_output=True, text=True, errors="replace", check=False, **options)


def _limit(seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def builds(landscape: Landscape, ignore: Sequence[str], alike: Sequence[str]) -> dict[Key, list[Key]]:
    """Map the key of each configuration to compile to the keys that share its build, in random order."""
    found: dict[tuple[Any, ...], list[Key]] = {}
    names = [name for name in landscape.values if name not in ignore]
    for key in landscape.times:
        config = dict(zip(landscape.values, key, strict=True))
        found.setdefault(tuple(config[name] for name in (alike or names)), []).append(key)
    shared = [keys for _, keys in sorted(found.items(), key=repr)]
    # A run that is interrupted leaves a fair sample.
    random.Random(1).shuffle(shared)
    return {keys[0]: keys for keys in shared}


def compiled(
    landscape: Landscape, fixed: Mapping[str, Any], shared: Sequence[Key], compiler: Compiler, workers: int
) -> Iterator[tuple[Key, Figures | None]]:
    """Yield the key and figures of each build, in the order of `shared`."""
    macros = [{**fixed, **dict(zip(landscape.values, key, strict=True))} for key in shared]
    with ThreadPoolExecutor(workers) as pool:  # each thread waits for a compiler
        yield from zip(shared, pool.map(compiler.figures, macros), strict=True)


def _compiler_seconds() -> float:
    """Return the processor seconds of the compilers that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile what is missing, and write the answer now and then."""
    asked = _parser().parse_args(arguments)
    landscape, fixed = Landscape.read(asked.landscape), Landscape.fixed(asked.landscape)
    file = asked.out / f"{landscape.name}.json"
    empty: dict[str, Any] = {"seconds": 0.0, "features": {}}
    known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else empty
    shared = builds(landscape, _listed(asked.ignore), _listed(asked.alike))
    missing = {key: keys for key, keys in shared.items() if json.dumps(key) not in known["features"]}
    print(
        f"{landscape.name}: {len(shared)} builds of {len(landscape.times)} configurations, {len(missing)} to make"
    )
    compiler = Compiler(asked.kernel, asked.arch, asked.include, asked.limit, asked.bare, asked.entry)
    asked.out.mkdir(parents=True, exist_ok=True)
    before, written = known["seconds"] - _compiler_seconds(), time.monotonic()
    for key, figures in compiled(landscape, fixed, list(missing), compiler, asked.workers):
        known["features"] |= {json.dumps(one): figures for one in missing[key]}
        known["seconds"] = before + _compiler_seconds()
        if time.monotonic() - written > WRITE_S:
            file.write_text(json.dumps(known))
            written = time.monotonic()
    file.write_text(json.dumps(known))
    failed = sum(known["features"].get(json.dumps(key)) is None for key in shared)
    print(f"{known['seconds']:.0f} processor seconds of compiling; {failed} builds failed or reached the limit")
    return 0


def _listed(text: str) -> list[str]:
    return text.split(",") if text else []


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--landscape", type=Path, required=True, help="Kernel Tuner cache file")
    parser.add_argument("--kernel", type=Path, required=True, help="the HIP or CUDA source that was tuned")
    parser.add_argument("--arch", required=True, help="such as gfx90a or sm_80")
    parser.add_argument("--out", type=Path, required=True, help="folder of the answers")
    parser.add_argument("--ignore", default="", help="parameters that do not change the code, comma-separated")
    parser.add_argument("--alike", default="", help="parameters that determine the code, comma-separated (all)")
    parser.add_argument("--include", type=Path, action="append", default=[], help="folder of headers")
    parser.add_argument("--limit", type=int, default=4, help="processor seconds of a build (4)")
    parser.add_argument("--entry", default="", help="part of the kernel's name, where the source has several")
    parser.add_argument("--bare", action="store_true", help="without headers and libraries of ROCm")
    parser.add_argument("--workers", type=int, default=2, help="compilers at the same time (2)")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())

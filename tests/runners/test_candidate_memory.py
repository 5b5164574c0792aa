"""Test that outputs of Python candidates come from memory whose pages are in place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runners.harness.processes.participant import thread_environment

pytestmark = pytest.mark.evaluates

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, mmap, resource, sys
from runners.candidate.calls import Caller
from runners.candidate.module import ModuleCallee
from runners.candidate.tensors import HostArena

path, elements = sys.argv[1], int(sys.argv[2])
size = 4 * elements
arena = mmap.mmap(-1, 16 * size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
tensor = lambda name: {"name": name, "dtype": "float32", "shape": [elements], "strides": [1]}
caller = Caller(ModuleCallee(path, HostArena(arena), ""))
caller.answer({"op": "case", "case": {"inputs": [tensor("x")], "outputs": [tensor("out")], "structure": None}})
found = []
for count in [1, 2, 2, 4, 3, 6, 2, 4]:
    calls = [{"inputs": [2 * n * size], "outputs": [(2 * n + 1) * size]} for n in range(count)]
    caller.answer({"op": "ready", "calls": count})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    caller.answer({"op": "run", "calls": calls})
    found.append((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / count)
    caller.answer({"op": "store"})
print(json.dumps(found))
"""
CANDIDATE = "import torch\ndef custom_kernel(x):\n    return torch.empty_like(x).copy_(x)\n"
PAGES_OF_4_MIB = 1024


def faults(folder: Path, mib: int) -> list[float]:
    path = folder / "candidate.py"
    path.write_text(CANDIDATE)
    environment = {**os.environ, **thread_environment(1), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), str(mib << 18)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    found: list[float] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("mib", [4, 40])
def test_calls_meet_no_fresh_pages_whatever_the_size_of_request_and_output(tmp_path: Path, mib: int) -> None:
    """Beyond 32 MiB glibc would map each allocation on its own."""
    first, *others = faults(tmp_path, mib)
    assert first < PAGES_OF_4_MIB / 4
    assert max(others) < 50

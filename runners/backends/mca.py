"""Simulate the hottest block of an amdgcn kernel with llvm-mca, which models issue and the vector and matrix pipes.

It knows nothing of memory latency, so its cycles are a lower bound of the block's. Without llvm-mca the figure is
missing, and everything else works.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from runners.backends.base import BuildRequest
from runners.backends.compiling import Toolbox, policy
from runners.backends.resources import Simulator
from runners.sandbox import run
from runners.static_features import Listing, hottest_block
from runners.targets import target

# llvm-mca's time grows with the instructions that it simulates; longer blocks are cut, and their cycles scaled.
MOST_INSTRUCTIONS = 400
ITERATIONS = 10
# A plain `llvm-mca` may be years older than the architectures, so only versions that know them are asked for.
_NAMES = (*(f"llvm-mca-{major}" for major in range(30, 18, -1)), "/opt/rocm/llvm/bin/llvm-mca")
_CYCLES = re.compile(r"^Total Cycles:\s+(\d+)", re.MULTILINE)
# Debug directives and relocations that only make sense inside the whole file; and waits, which have no operand model.
_UNMODELLED = re.compile(
    r"s_(waitcnt|nop|c?branch|setpc|swappc|getpc|endpgm|sleep|barrier|delay_alu|clause)|.*[@$]"
)


def llvm_mca() -> str | None:
    """Return the path of llvm-mca, or None if it is not installed."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    # The sandbox shows the program itself, and not the folder of a link to it.
    return str(Path(found).resolve()) if found else None


def simulator(request: BuildRequest) -> Simulator | None:
    """Return a function from a listing to the cycles of its hottest block, or None without llvm-mca."""
    tool = llvm_mca()
    if tool is None:
        return None
    return lambda listing: _cycles(request, tool, listing)


def _cycles(request: BuildRequest, tool: str, listing: Listing) -> float | None:
    """Return the cycles of one pass through the hottest block; None where llvm-mca refuses it."""
    block = hottest_block(listing)
    texts = [one.text for one in listing.instructions[block.start : block.stop]] if block else []
    lines = [text for text in texts if not _UNMODELLED.match(text)]
    if not lines:
        return None
    out = request.folder / "build"
    out.mkdir(exist_ok=True)
    source = request.folder / "hottest.s"
    source.write_text("\n".join(lines[:MOST_INSTRUCTIONS]) + "\n")
    source.chmod(0o644)
    cpu = target(request.target).arch
    command = [tool, "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", f"-iterations={ITERATIONS}", str(source)]
    # The block is hostile text: the simulator runs where the compiler does.
    done = run(command, policy(request, (source, *_beside(tool)), out, Toolbox()))
    found = _CYCLES.search(done.stdout) if done.ok else None
    simulated = min(len(lines), MOST_INSTRUCTIONS)
    return round(int(found[1]) / ITERATIONS * len(lines) / simulated, 1) if found else None


def _beside(tool: str) -> tuple[Path, ...]:
    """Return the folder of an LLVM that is not among the system's programs."""
    return () if tool.startswith("/usr/") else (Path(tool).parents[1],)

"""Find the loop in a kernel's machine code with the densest arithmetic.

Instructions are counted and not timed, so this is where the time probably goes. A prompt has room for one loop and not
for a listing. The text is a disassembler's output of code that a hostile source made a compiler write, so it is only
ever shown as data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

# A longer loop would crowd out the rest of a prompt.
MOST_LINES = 80
LEAST_LINES = 4
_LABEL = re.compile(r"^\s*(\.?[A-Za-z_$][\w$.]*):")
_ADDRESS = re.compile(r"^\s*/\*([0-9a-f]{4,8})\*/")
_BRANCH = re.compile(
    r"\b(?:s_cbranch_\w+|s_branch|BRA(?:\.\w{1,20}+){0,8}+)\s+(?:`?\(?)(?P<to>0x[0-9a-f]+|\.?[A-Za-z_$][\w$.]*)"
)
_X86_JUMP = re.compile(r"^\s*j[a-z]+\s")
_PADDING = re.compile(r"^\s*(?:data16 |cs )*nop[wl]?\b")
_CALL = re.compile(r"^\s*call\s")
# Instructions that do a kernel's work: arithmetic on vectors and matrices, and loads of data.
_WORK = re.compile(
    r"\b(?:v_mfma|v_fma|v_pk_|v_dot|v_mul_f|v_add_f|global_load|buffer_load|ds_read"
    r"|HGMMA|WGMMA|HMMA|IMMA|QGMMA|FFMA|FADD|FMUL|HFMA2|MUFU|LDG|LDS"
    r"|vf(?:n?m)(?:add|sub)\w*|v(?:mul|add|sub|max|min|div)p[sd]|vdpbf16ps|tdp\w+)"
)


def hot_loop(assembly: Mapping[str, str]) -> dict[str, str]:
    """Return the loop by architecture, or an empty mapping where none is found that fits."""
    found = {name: _hottest(text.splitlines()) for name, text in assembly.items()}
    return {name: loop for name, loop in found.items() if loop}


def _hottest(lines: Sequence[str]) -> str:
    """Return the lines of the innermost loop with most work in it, or an empty text."""
    loops = list(_loops(lines))
    innermost = _innermost(loops)
    fitting = [
        (start, end)
        for start, end in loops
        if (start, end) in innermost and LEAST_LINES <= end - start <= MOST_LINES
    ]
    best = max(fitting, key=lambda loop: _work(lines[slice(*loop)]), default=None)
    if best is None or not _work(lines[slice(*best)]):
        return ""
    return "\n".join(line.rstrip() for line in lines[slice(*best)])


def _loops(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield loops as pairs of line numbers: what lies between a target and a branch back to it.

    Listings for x86 do not say where a jump goes. There, the stretches between two jumps stand for loops: a compiler
    puts the test of an inner loop at its end.
    """
    targets: dict[str, int] = {}
    start = 0
    for number, line in enumerate(lines):
        if found := _LABEL.match(line):
            targets[found[1]] = number
        elif found := _ADDRESS.match(line):
            targets[hex(int(found[1], 16))] = number
        if (branch := _BRANCH.search(line)) and branch["to"] in targets:
            yield targets[branch["to"]], number + 1
        elif _X86_JUMP.match(line):
            yield start, number + 1
            start = number + 1
        elif _PADDING.match(line):
            # Compilers align the first instruction of a loop.
            start = number + 1


def _innermost(loops: Collection[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the loops in which no other one lies."""
    found: set[tuple[int, int]] = set()
    nearest_end = math.inf
    # From the last beginning to the first: a loop has another one inside if one that begins later ends in it.
    for start, end in sorted(set(loops), key=lambda loop: (-loop[0], loop[1])):
        if end < nearest_end:
            found.add((start, end))
            nearest_end = end
    return found


def _work(lines: Sequence[str]) -> float:
    """Return how much work a loop does: the number of such instructions times their share; 0 with a call inside."""
    if any(_CALL.match(line) for line in lines):
        return 0.0
    count = sum(bool(_WORK.search(line)) for line in lines)
    return count * count / len(lines)

"""Compute where a thread is in another kernel of its run, through the diffs of the generations between, with a cache.

The path consists of first parents between the two kernels, in either direction; without such a path, one direct diff
is used. Kernels, parents and anchors never change, so cached positions stay valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from optimizer.diffs.differ import Opcode, diff
from optimizer.diffs.porting import Position, port
from optimizer.diffs.rows import Text
from optimizer.models import Kernel, KernelParent, Thread

CACHED_POSITIONS = 65_536
CACHED_DIFFS = 1_024


def position_in(thread: Thread, kernel: Kernel) -> Position | None:
    """Return the thread's lines as lines of `kernel`, or None for a thread that is not about lines."""
    if thread.kernel_id is None or thread.first_line is None or thread.line_count is None:
        return None
    return _position(thread.kernel_id, thread.first_line, thread.line_count, kernel.pk)


def first_parents(kernel: Kernel) -> list[int]:
    """Return the ids of the kernel's base, its base's base, and so on."""
    return _upwards(kernel.pk, _bases(kernel.run_id))


def ancestors(kernel: Kernel) -> set[int]:
    """Return the ids of all kernels from which the kernel descends, through all parents."""
    edges: dict[int, list[int]] = {}
    for child, parent in KernelParent.objects.filter(kernel__run=kernel.run_id).values_list("kernel", "parent"):
        edges.setdefault(child, []).append(parent)
    found: set[int] = set()
    waiting = [kernel.pk]
    while waiting:
        fresh = [parent for parent in edges.get(waiting.pop(), []) if parent not in found]
        found.update(fresh)
        waiting += fresh
    return found


def path_between(anchor: int, target: int, bases: Mapping[int, int]) -> list[int]:
    """Return the kernels to port through, from `anchor` to `target`, both included."""
    up = [target, *_upwards(target, bases)]
    if anchor in up:
        return up[: up.index(anchor) + 1][::-1]
    down = [anchor, *_upwards(anchor, bases)]
    return down[: down.index(target) + 1] if target in down else [anchor, target]


@lru_cache(maxsize=CACHED_POSITIONS)
def _position(anchor: int, first: int, count: int, target: int) -> Position:
    if anchor == target:
        return Position(first, count)
    run_id = Kernel.objects.values_list("run_id", flat=True).get(pk=target)
    path = path_between(anchor, target, _bases(run_id))
    position = Position(first, count)
    # Step by step: small diffs between generations follow a line better than one large diff does.
    for before, after in pairwise(path):
        position = port(position, _opcodes(before, after))
    return position


@lru_cache(maxsize=CACHED_DIFFS)
def _opcodes(before: int, after: int) -> Sequence[Opcode]:
    texts = dict(Kernel.objects.filter(pk__in=[before, after]).values_list("pk", "source"))
    return diff(Text.of(texts[before]).lines, Text.of(texts[after]).lines)


def _bases(run_id: int) -> dict[int, int]:
    return dict(KernelParent.objects.filter(kernel__run=run_id, rank=0).values_list("kernel", "parent"))


def _upwards(kernel: int, bases: Mapping[int, int]) -> list[int]:
    found: list[int] = []
    # The second condition ends the walk even if corrupt data formed a cycle.
    while (kernel := bases.get(kernel, 0)) and kernel not in found:
        found.append(kernel)
    return found

"""Summarise a kernel's machine code as named figures, the static features of a build.

Counts are of instructions as written: how often a loop runs is not in the code. Those inside loops are therefore
counted apart, and a time model learns from measurements what they are worth.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from runners.static_features.kinds import Kind, flops_of, kind_of, width_bytes
from runners.static_features.lanes import Lanes, Stride
from runners.static_features.listing import Block, Dialect, Instruction, Listing

# Part of the key of cached builds: raise it when a figure is added or counted differently.
VERSION = 2
BANKS = 32  # of four bytes each, on CDNA and on every NVIDIA GPU since Kepler
LABELS = {
    "programs": "Programs of the largest launch",
    "instructions": "Instructions",
    "loop_instructions": "Instructions in loops",
    "hot_instructions": "Instructions of the hottest block",
    "hot_cycles": "Cycles of the hottest block (llvm-mca)",
    "loops": "Loops",
    "loop_depth": "Deepest loop",
    "blocks": "Basic blocks",
    **{kind.value: f"{kind.value.replace('_', ' ').capitalize()} instructions" for kind in Kind},
    **{f"loop_{kind.value}": f"{kind.value.replace('_', ' ').capitalize()} instructions in loops" for kind in Kind},
    "flops": "Floating-point operations of a lane",
    "loop_flops": "Floating-point operations of a lane in loops",
    "load_bytes": "Bytes loaded by a lane",
    "store_bytes": "Bytes stored by a lane",
    "lds_bytes_moved": "LDS bytes moved by a lane",
    "loop_load_bytes": "Bytes loaded by a lane in loops",
    "load_width": "Mean width of a load, bytes",
    "contiguous": "Contiguous accesses to memory",
    "strided": "Strided accesses to memory",
    "broadcast": "Accesses that all lanes share",
    "scattered": "Accesses of unknown pattern",
    "stride_lines": "Cache lines of a wave's access, mean",
    "lds_conflict_ways": "LDS bank conflict, worst ways",
    "lds_conflicts": "LDS accesses with bank conflicts",
    "matrix_share": "Matrix share of arithmetic instructions",
    "flops_per_byte": "Floating-point operations per byte loaded or stored",
}  # fmt: skip
_LINE_BYTES = 128
_WAVE = 64


def features_of(listing: Listing, hot_cycles: float | None = None) -> dict[str, float]:
    """Return the features of a kernel by name (see LABELS), without those that are not known for its dialect.

    `hot_cycles` is what a simulator of the pipeline says of the hottest block, where there is one.
    """
    if not listing.instructions:
        return {}
    counted = _Counted(listing)
    found: dict[str, float] = {**counted.structure, **counted.by_kind, **counted.traffic, **counted.ratios}
    if listing.dialect is Dialect.AMDGCN:
        found |= _Patterns.of(listing, counted.kinds).figures
    return found if hot_cycles is None else found | {"hot_cycles": hot_cycles}


def hottest_block(listing: Listing) -> Block | None:
    """Return the longest of the basic blocks in the deepest loop, or None for a listing without instructions."""
    return max(listing.blocks, key=lambda block: (block.depth, len(block)), default=None)


@dataclass(frozen=True)
class _Counted:
    """Count the instructions of a listing."""

    listing: Listing

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(kind_of(self.listing.dialect, one) for one in self.listing.instructions)

    @property
    def structure(self) -> dict[str, float]:
        """Return the size of the code and of its loops."""
        hot, depths = hottest_block(self.listing), self.listing.depths
        return {
            "instructions": len(depths),
            "loop_instructions": sum(depth > 0 for depth in depths),
            "hot_instructions": len(hot) if hot else 0,
            "loops": self.listing.loops,
            "loop_depth": max(depths, default=0),
            "blocks": len(self.listing.blocks),
        }

    @cached_property
    def by_kind(self) -> dict[str, float]:
        """Return the instructions of each kind, everywhere and in loops."""
        everywhere = Counter(self.kinds)
        looped = Counter(kind for kind, depth in zip(self.kinds, self.listing.depths, strict=True) if depth)
        found = {kind.value: float(everywhere[kind]) for kind in Kind}
        return found | {f"loop_{kind.value}": float(looped[kind]) for kind in Kind}

    @cached_property
    def traffic(self) -> dict[str, float]:
        """Return the operations and bytes of a lane."""
        totals: Counter[str] = Counter()
        for one, kind, depth in zip(self.listing.instructions, self.kinds, self.listing.depths, strict=True):
            for name, amount in self._moved(one, kind):
                totals[name] += amount
                if depth:
                    totals[f"loop_{name}"] += amount
        names = ("flops", "loop_flops", "load_bytes", "store_bytes", "lds_bytes_moved", "loop_load_bytes")
        return {name: float(totals[name]) for name in names}

    def _moved(self, one: Instruction, kind: Kind) -> Iterator[tuple[str, int]]:
        width = width_bytes(self.listing.dialect, one.opcode)
        if kind is Kind.LOAD:
            yield "load_bytes", width
        elif kind is Kind.STORE:
            yield "store_bytes", width
        elif kind in (Kind.LDS_LOAD, Kind.LDS_STORE):
            yield "lds_bytes_moved", width
        elif kind in (Kind.VECTOR, Kind.SCALAR):
            yield "flops", flops_of(one.opcode)

    @property
    def ratios(self) -> dict[str, float]:
        """Return figures that compare counts."""
        loads, matrix = self.by_kind[Kind.LOAD], self.by_kind[Kind.MATRIX]
        arithmetic = matrix + self.by_kind[Kind.VECTOR]
        moved = self.traffic["load_bytes"] + self.traffic["store_bytes"]
        return {
            "load_width": self.traffic["load_bytes"] / loads if loads else 0.0,
            "matrix_share": matrix / arithmetic if arithmetic else 0.0,
            "flops_per_byte": self.traffic["flops"] / moved if moved else 0.0,
        }


@dataclass(frozen=True)
class _Patterns:
    """Hold the access patterns: (stride, width in bytes) of accesses to memory and to LDS, by lane."""

    memory: tuple[tuple[Stride, int], ...]
    lds: tuple[tuple[Stride, int], ...]

    @classmethod
    def of(cls, listing: Listing, kinds: tuple[Kind, ...]) -> _Patterns:
        lanes = Lanes()
        memory: list[tuple[Stride, int]] = []
        lds: list[tuple[Stride, int]] = []
        for one, kind in zip(listing.instructions, kinds, strict=True):
            if kind in _ADDRESS and len(one.operands) > _ADDRESS[kind]:
                address = one.operands[_ADDRESS[kind]]
                width = width_bytes(listing.dialect, one.opcode)
                (memory if kind in (Kind.LOAD, Kind.STORE) else lds).append((lanes.stride(address), width))
            lanes.step(one)
        return cls(tuple(memory), tuple(lds))

    @property
    def figures(self) -> dict[str, float]:
        """Return how many accesses follow each pattern, and what they cost."""
        classes = Counter(_pattern(stride, width) for stride, width in self.memory)
        lines = [_lines(stride, width) for stride, width in self.memory if stride is not None]
        ways = [_ways(stride, width) for stride, width in self.lds if stride is not None]
        return {
            **{name: classes[name] for name in ("contiguous", "strided", "broadcast", "scattered")},
            "stride_lines": sum(lines) / len(lines) if lines else 0.0,
            "lds_conflict_ways": max(ways, default=0),
            "lds_conflicts": sum(way > 1 for way in ways),
        }


# Where the address is among the operands: stores to memory and all LDS stores name it first.
_ADDRESS = {Kind.LOAD: 1, Kind.STORE: 0, Kind.LDS_LOAD: 1, Kind.LDS_STORE: 0}


def _pattern(stride: Stride, width: int) -> str:
    if stride is None:
        return "scattered"
    if stride == 0:
        return "broadcast"
    return "contiguous" if abs(stride) <= width else "strided"


def _lines(stride: int, width: int) -> float:
    """Return how many cache lines a wave touches with one access."""
    return min(_WAVE, math.ceil((abs(stride) * (_WAVE - 1) + width) / _LINE_BYTES))


def _ways(stride: int, width: int) -> int:
    """Return how many lanes of one pass meet in a bank; 1 is free of conflicts.

    Wider accesses are served in more passes of fewer lanes, which is not counted as a conflict.
    """
    words = abs(stride) // 4
    if words == 0 or abs(stride) % 4:
        return 1
    return max(1, math.gcd(words, BANKS) * 4 // max(width, 4))

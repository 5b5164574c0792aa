"""Describe what a call computes on: its buffers, the values beside them, and what a candidate is given once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners.problems.base import Case
from runners.problems.dtypes import ELEMENT_TYPES

# Integers have no NaN; this value is large in every width and recognisable in a dump.
INTEGER_POISON = 0xAB


@dataclass(frozen=True)
class Buffer:
    """Describe a tensor's layout as plain data, and its place.

    `spec` holds `dtype`, `shape` and `strides` in elements. `offset` is its place in the reference buffers, -1 if it
    has none yet. `poison` is the byte that fills it before a call.
    """

    spec: dict[str, Any]
    offset: int
    size_bytes: int
    poison: int


Plain = bool | int | float | str | None


@dataclass(frozen=True)
class Content:
    """Describe the inputs of one call and the layouts of its outputs.

    `inputs` holds buffers and plain values, by name; `structure` says how arguments are made of them (see
    `CallInputs`). `written` names the inputs that the reference itself writes to, for example an output buffer that
    is passed in.
    """

    number: int
    case: Case
    distribution: str
    inputs: dict[str, Buffer | Plain]
    outputs: list[Buffer]
    structure: Any = None
    written: frozenset[str] = frozenset()

    @property
    def buffer_sizes(self) -> list[int]:
        """Return the bytes of every buffer that a call needs, inputs first."""
        inputs = [value.size_bytes for value in self.inputs.values() if isinstance(value, Buffer)]
        return inputs + [output.size_bytes for output in self.outputs]


@dataclass(frozen=True)
class Setups:
    """Describe what Python candidates are given once: the folder, None if there is nothing, and its setups by case
    name."""

    folder: Path | None
    names: dict[str, str]

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return the paths that a sandbox must show."""
        return () if self.folder is None else (self.folder,)


def poison_of(dtype: str) -> int:
    """Return the byte that, repeated, is a NaN of that dtype; 0xAB for integers."""
    if not ELEMENT_TYPES[dtype].floating:
        return INTEGER_POISON
    return 0x80 if dtype.endswith("fnuz") else 0xFF

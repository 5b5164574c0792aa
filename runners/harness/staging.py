"""Bringing calls into an arena, and looking afterwards at what should not have changed.

Before each request: buffers at fresh addresses with guards around them, inputs copied from the vault, outputs
poisoned (NaN, or 0xAB for integers). Afterwards: guards intact, inputs unchanged. Writing beyond an output, changing
an input and leaving a part of the output alone all show.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import Any

from runners.harness.contents import Buffer, Content
from runners.harness.errors import CandidateFailure
from runners.harness.memory import (
    ALIGNMENT_BYTES,
    GUARD_BYTES,
    GUARD_FILL,
    SharedMemory,
    aligned,
    place,
    slot_bytes,
)
from runners.job import Status
from runners.problems.base import Problem, Role


@dataclass(frozen=True)
class StagedCall:
    """One call's place in an arena. `inputs` has an offset for each buffer and the number itself for scalars."""

    content: Content
    inputs: list[float]
    outputs: list[int]

    @property
    def message(self) -> dict[str, Any]:
        """What the participant is told."""
        return {"inputs": self.inputs, "outputs": self.outputs}

    def buffers(self) -> list[tuple[int, Buffer]]:
        """Every buffer with its offset, inputs first."""
        inputs = zip(self.inputs, self.content.inputs.values(), strict=True)
        placed = [(int(offset), value) for offset, value in inputs if isinstance(value, Buffer)]
        return placed + list(zip(self.outputs, self.content.outputs, strict=True))


def case_layout(problem: Problem, content: Content) -> dict[str, Any]:
    """What a participant must know of a case: layouts of inputs and outputs, and the C signature's order."""
    inputs = [v.spec if isinstance(v, Buffer) else {"name": n} for n, v in content.inputs.items()]
    names = list(content.inputs)
    outputs = [a.name for a in problem.arguments if a.role is Role.OUTPUT]
    signature: list[dict[str, Any]] = []
    for argument in problem.arguments:
        match argument.role:
            case Role.INPUT:
                signature.append({"kind": "pointer", "from": "inputs", "index": names.index(argument.name)})
            case Role.OUTPUT:
                signature.append({"kind": "pointer", "from": "outputs", "index": outputs.index(argument.name)})
            case Role.SCALAR:
                signature.append({"kind": argument.dtype, "from": "inputs", "index": names.index(argument.name)})
            case Role.SIZE:
                signature.append({"kind": argument.dtype, "value": content.case.sizes[argument.name]})
    return {"inputs": inputs, "outputs": [output.spec for output in content.outputs], "signature": signature}


def arena_bytes(content: Content, calls: int) -> int:
    """Size of an arena for that many calls, with room to move them around."""
    return calls * slot_bytes(content.buffer_sizes) + 64 * ALIGNMENT_BYTES


def stage(
    arena: SharedMemory, vault: SharedMemory, contents: list[Content], rng: random.Random
) -> list[StagedCall]:
    """Place one call for each content."""
    offsets = place(arena.size_bytes, [content.buffer_sizes for content in contents], rng)
    calls = [_staged(content, where) for content, where in zip(contents, offsets, strict=True)]
    for call in calls:
        for offset, buffer in call.buffers():
            _guard(arena, offset, buffer.size_bytes)
            if buffer.offset >= 0:
                arena.copy_from(offset, vault, buffer.offset, buffer.size_bytes)
            else:
                arena.fill(offset, buffer.size_bytes, buffer.poison)
    return calls


def check_untouched(arena: SharedMemory, vault: SharedMemory, call: StagedCall) -> None:
    """Raises CandidateFailure where the call wrote to a guard or to an input."""
    for offset, buffer in call.buffers():
        end = offset + buffer.size_bytes
        tail = _tail_bytes(buffer.size_bytes)
        if not arena.equals(end, _guard_pattern(), 0, tail):
            raise _incorrect(call, f"wrote behind the end of {_name(call, buffer)}")
        if not arena.equals(offset - GUARD_BYTES, _guard_pattern(), 0, GUARD_BYTES):
            raise _incorrect(call, f"wrote before the start of {_name(call, buffer)}")
        if buffer.offset >= 0 and not arena.equals(offset, vault, buffer.offset, buffer.size_bytes):
            raise _incorrect(call, f"changed its input {_name(call, buffer)}")


def _staged(content: Content, offsets: list[int]) -> StagedCall:
    remaining = iter(offsets)
    inputs = [next(remaining) if isinstance(v, Buffer) else v for v in content.inputs.values()]
    return StagedCall(content, inputs, list(remaining))


def _tail_bytes(size_bytes: int) -> int:
    return aligned(size_bytes) - size_bytes + GUARD_BYTES


def _guard(arena: SharedMemory, offset: int, size_bytes: int) -> None:
    arena.fill(offset - GUARD_BYTES, GUARD_BYTES, GUARD_FILL)
    arena.fill(offset + size_bytes, _tail_bytes(size_bytes), GUARD_FILL)


@cache
def _guard_pattern() -> SharedMemory:
    pattern = SharedMemory("guard", GUARD_BYTES + ALIGNMENT_BYTES)
    pattern.fill(0, pattern.size_bytes, GUARD_FILL)
    return pattern


def _name(call: StagedCall, buffer: Buffer) -> str:
    if buffer.offset >= 0:
        return str(buffer.spec["name"])
    index = call.content.outputs.index(buffer)
    return "the output" if len(call.content.outputs) == 1 else f"output {index}"


def _incorrect(call: StagedCall, reason: str) -> CandidateFailure:
    return CandidateFailure(Status.INCORRECT, reason, call.content.case.name)

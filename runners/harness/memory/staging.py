"""Lay calls out in an arena, and check afterwards what should not have changed.

Before each request, buffers get fresh addresses with guards around them, inputs are copied from the reference
buffers, and outputs are poisoned (NaN, or 0xAB for integers). Afterwards, guards must be intact and inputs unchanged.
This detects writing beyond an output, changing an input and leaving a part of the output unwritten.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, cast

from runners.errors import CandidateFailure
from runners.harness.memory.arena import Arena, Piece
from runners.harness.memory.contents import INTEGER_POISON, Buffer, Content, Plain
from runners.harness.memory.shared_memory import (
    ALIGNMENT_BYTES,
    GUARD_BYTES,
    GUARD_FILL,
    aligned,
    place,
    slot_bytes,
)
from runners.job import Status
from runners.problems.base import Problem, Role


@dataclass(frozen=True)
class StagedCall:
    """Describe one call's place in an arena. `inputs` has an offset for each buffer and the value itself for plain
    ones."""

    content: Content
    inputs: list[Plain]
    outputs: list[int]

    @property
    def message(self) -> dict[str, Any]:
        """Return what the participant is told."""
        return {"inputs": self.inputs, "outputs": self.outputs}

    def buffers(self) -> list[tuple[int, Buffer]]:
        """Return every buffer with its offset, inputs first."""
        inputs = zip(self.inputs, self.content.inputs.values(), strict=True)
        placed = [(cast(int, offset), value) for offset, value in inputs if isinstance(value, Buffer)]
        return placed + list(zip(self.outputs, self.content.outputs, strict=True))


def case_layout(problem: Problem, content: Content) -> dict[str, Any]:
    """Return what a participant must know of a case.

    These are the layouts of inputs and outputs, how arguments are made of the inputs, and the C signature's order.
    """
    inputs = [v.spec if isinstance(v, Buffer) else {"name": n} for n, v in content.inputs.items()]
    return {
        "inputs": inputs,
        "outputs": [output.spec for output in content.outputs],
        "structure": content.structure,
        "signature": _signature(problem, content),
    }


def _signature(problem: Problem, content: Content) -> list[dict[str, Any]]:
    """Return where each C argument comes from.

    It is a buffer or number of the call, a parameter by its state dict's name, or a value that is fixed for the case.
    """
    names = list(content.inputs)
    outputs = [a.name for a in problem.arguments if a.role is Role.OUTPUT]
    signature: list[dict[str, Any]] = []
    for argument in problem.arguments:
        kind = argument.dtype if argument.role in (Role.SIZE, Role.SCALAR) else "pointer"
        if argument.role is Role.OUTPUT:
            signature.append({"kind": kind, "from": "outputs", "index": outputs.index(argument.name)})
        elif argument.role is Role.PARAMETER:
            signature.append({"kind": kind, "parameter": argument.value_name})
        elif argument.role is not Role.SIZE and argument.value_name in names:
            signature.append({"kind": kind, "from": "inputs", "index": names.index(argument.value_name)})
        else:
            signature.append({"kind": kind, "value": problem.size_of(argument, content.case)})
    return signature


def arena_bytes(content: Content, calls: int) -> int:
    """Return the size of an arena for that many calls, with room to move them around."""
    return calls * slot_bytes(content.buffer_sizes) + 64 * ALIGNMENT_BYTES


def stage(arena: Arena, contents: list[Content], rng: random.Random) -> list[StagedCall]:
    """Place one call for each content."""
    offsets = place(arena.size_bytes, [content.buffer_sizes for content in contents], rng)
    calls = [_staged(content, where) for content, where in zip(contents, offsets, strict=True)]
    arena.lay([piece for call in calls for piece in (*_guards(call), *_data(call))])
    return calls


def check_untouched(arena: Arena, calls: list[StagedCall]) -> None:
    """Raise CandidateFailure if a call wrote to a guard, or to an input that the reference leaves alone."""
    watched = [(call, piece) for call in calls for piece in (*_guards(call), *_inputs(call))]
    index = arena.first_difference([piece for _, piece in watched])
    if index is not None:
        raise CandidateFailure(Status.INCORRECT, _complaint(*watched[index]), watched[index][0].content.case.name)


def check_begun(arena: Arena, calls: list[StagedCall]) -> None:
    """Raise CandidateFailure if an answered call has left a whole output at its NaN.

    Integers are not checked, because no integer is a value that kernels never write.
    """
    outputs = [(call, p) for call in calls for p in _data(call) if not p.name and p.byte != INTEGER_POISON]
    index = arena.first_untouched([piece for _, piece in outputs])
    if index is not None:
        case = outputs[index][0].content.case.name
        raise CandidateFailure(Status.INCORRECT, "an output was not written when the call was answered", case)


def _guards(call: StagedCall) -> list[Piece]:
    """Return the guards before and behind every buffer, up to the next alignment and a guard beyond."""
    pieces = []
    for offset, buffer in call.buffers():
        behind = aligned(buffer.size_bytes) - buffer.size_bytes + GUARD_BYTES
        pieces.append(Piece(offset + buffer.size_bytes, behind, GUARD_FILL))
        pieces.append(Piece(offset - GUARD_BYTES, GUARD_BYTES, GUARD_FILL))
    return pieces


def _inputs(call: StagedCall) -> list[Piece]:
    return [piece for piece in _data(call) if piece.name and piece.name not in call.content.written]


def _data(call: StagedCall) -> list[Piece]:
    """Return the inputs from the reference buffers and the poisoned outputs."""
    number = call.content.number
    return [
        Piece(offset, buffer.size_bytes, 0, number, buffer.spec["name"], buffer.offset)
        if buffer.offset >= 0
        else Piece(offset, buffer.size_bytes, buffer.poison)
        for offset, buffer in call.buffers()
    ]


def _complaint(call: StagedCall, piece: Piece) -> str:
    """Describe what a change of this piece means."""
    if piece.name:
        return f"changed its input {piece.name}"
    for offset, buffer in call.buffers():
        if piece.offset == offset + buffer.size_bytes:
            return f"wrote behind the end of {_name(call, buffer)}"
        if piece.offset == offset - GUARD_BYTES:
            return f"wrote before the start of {_name(call, buffer)}"
    return "wrote where nothing was its own"


def _staged(content: Content, offsets: list[int]) -> StagedCall:
    remaining = iter(offsets)
    inputs = [next(remaining) if isinstance(v, Buffer) else v for v in content.inputs.values()]
    return StagedCall(content, inputs, list(remaining))


def _name(call: StagedCall, buffer: Buffer) -> str:
    if buffer.offset >= 0:
        return str(buffer.spec["name"])
    index = call.content.outputs.index(buffer)
    return "the output" if len(call.content.outputs) == 1 else f"output {index}"

"""Follow how addresses depend on the lane, to tell contiguous accesses from scattered ones and find bank conflicts.

A forward pass over the instructions keeps, for every register, by how much its value grows from one lane to the next
(0 where all lanes agree), or None where that is not a constant. It is linear in the listing and takes no loop twice:
increments that are the same in every lane do not change the figure. Only amdgcn is followed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from runners.static_features.listing import Instruction

Stride = int | None
_REGISTER = re.compile(r"([vsa])(\d+)$|([vsa])\[(\d+):(\d+)\]$")
_NUMBER = re.compile(r"-?(0x[0-9a-f]+|\d+)$")
_LANE_BITS = 0x3FF  # the first of three packed 10-bit thread indices in v0 (LLVM AMDGPU usage guide, initial VGPRs)
_MOST_STRIDE = 1 << 31  # registers have 32 bits, and a chain of products in a hostile listing must not grow further


@dataclass
class Lanes:
    """Hold the stride of every vector register and the value of every scalar register that holds a known constant."""

    strides: dict[str, Stride] = field(default_factory=lambda: {"v0": 1})
    constants: dict[str, int] = field(default_factory=dict)

    def step(self, instruction: Instruction) -> None:
        """Apply one instruction."""
        name, operands = _base(instruction.opcode), instruction.operands
        if not operands:
            return
        if name in ("s_mov_b32", "s_movk_i32", "s_mov_b64"):
            self._assign(operands[0], self._constant(operands[1]) if len(operands) > 1 else None)
        elif name.startswith("s_"):
            self.constants.pop(operands[0], None)
        elif name.startswith("v_"):
            self._vector(name, operands)
        elif "load" in name or "read" in name:
            self._write(operands[0], 0 if self.stride(operands[1] if len(operands) > 1 else "") == 0 else None)

    def stride(self, operand: str) -> Stride:
        """Return by how much an operand grows from lane to lane; of a pair of registers, the low one."""
        word = operand.split()[0] if operand else ""
        found = _REGISTER.match(word)
        if not found:
            return 0
        kind, number = (found[1], found[2]) if found[1] else (found[3], found[4])
        # Scalar registers are the same in every lane; accumulators are not followed.
        return 0 if kind == "s" else self.strides.get(f"{kind}{number}")

    def _vector(self, name: str, operands: Sequence[str]) -> None:
        # Instructions with a carry have it as their second operand.
        carries = "_co_" in name or name in ("v_mad_u64_u32", "v_mad_i64_i32")
        sources = operands[2:] if carries else operands[1:]
        self._write(operands[0], self._result(name, sources))

    def _result(self, name: str, sources: Sequence[str]) -> Stride:
        if name == "v_and_b32" and {self._constant(one) for one in sources} & {_LANE_BITS}:
            return self._only(sources)
        if name == "v_bfe_u32" and len(sources) == 3:
            return self._only(sources) if self._constant(sources[1]) == 0 else 0 if sources[0] == "v0" else None
        strides = [self.stride(one) for one in sources]
        if not any(one != 0 for one in strides):
            return 0
        rule = _RULES.get(name)
        return rule(self, sources) if rule is not None and len(sources) >= _ARITY[name] else None

    def _only(self, sources: Sequence[str]) -> Stride:
        return next((self.stride(one) for one in sources if one.startswith("v")), None)

    def _constant(self, operand: str) -> int | None:
        if operand in self.constants:
            return self.constants[operand]
        return int(operand, 0) if _NUMBER.match(operand) else None

    def _assign(self, register: str, value: int | None) -> None:
        if value is None:
            self.constants.pop(register, None)
        else:
            self.constants[register] = value

    def _write(self, operand: str, stride: Stride) -> None:
        found = _REGISTER.match(operand)
        if not found:
            return
        kind, first, last = (found[1], found[2], found[2]) if found[1] else (found[3], found[4], found[5])
        # The upper registers of an address hold carries, which no access here depends on. A hostile listing may name
        # any range.
        for number in range(int(first), min(int(last), int(first) + 16) + 1):
            known = stride is not None and abs(stride) < _MOST_STRIDE and number == int(first)
            self.strides[f"{kind}{number}"] = stride if known else None

    def sum(self, sources: Sequence[str]) -> Stride:
        """Return the stride of a sum."""
        strides = [self.stride(one) for one in sources]
        return None if None in strides else sum(one for one in strides if one is not None)

    def scaled(self, source: str, factor: int | None) -> Stride:
        """Return the stride of a product by a number; None where the number is not known."""
        stride = self.stride(source)
        if stride == 0:
            return 0
        return None if stride is None or factor is None else stride * factor

    def shifted(self, source: str, bits: str) -> Stride:
        """Return the stride of a left shift."""
        amount = self._constant(bits)
        return self.scaled(source, 1 << amount if amount is not None and 0 <= amount < 32 else None)

    def product(self, one: str, other: str) -> Stride:
        """Return the stride of a product."""
        if self.stride(one) == 0:
            one, other = other, one
        return self.scaled(one, self._constant(other))


def plus(one: Stride, other: Stride) -> Stride:
    """Return the sum of two strides, None where either is unknown."""
    return None if one is None or other is None else one + other


def _base(opcode: str) -> str:
    return re.sub(r"_(e32|e64|sdwa|dpp)$", "", opcode)


_RULES: dict[str, Callable[[Lanes, Sequence[str]], Stride]] = {
    "v_mov_b32": lambda lanes, s: lanes.stride(s[0]),
    **{name: lambda lanes, s: lanes.sum(s[:2]) for name in (
        "v_add_u32", "v_add_co_u32", "v_add_nc_u32", "v_or_b32", "v_add_co_ci_u32", "v_add_i32")},
    "v_add3_u32": lambda lanes, s: lanes.sum(s[:3]),
    "v_or3_b32": lambda lanes, s: lanes.sum(s[:3]),
    "v_sub_u32": lambda lanes, s: plus(lanes.stride(s[0]), lanes.scaled(s[1], -1)),
    "v_lshlrev_b32": lambda lanes, s: lanes.shifted(s[1], s[0]),
    "v_lshlrev_b64": lambda lanes, s: lanes.shifted(s[1], s[0]),
    **{name: lambda lanes, s: plus(lanes.shifted(s[0], s[1]), lanes.stride(s[2])) for name in (
        "v_lshl_add_u32", "v_lshl_add_u64", "v_lshl_or_b32")},
    "v_add_lshl_u32": lambda lanes, s: _shifted_sum(lanes, s),
    **{name: lambda lanes, s: lanes.product(s[0], s[1]) for name in (
        "v_mul_lo_u32", "v_mul_u32_u24", "v_mul_i32_i24")},
    **{name: lambda lanes, s: plus(lanes.product(s[0], s[1]), lanes.stride(s[2])) for name in (
        "v_mad_u32_u24", "v_mad_i32_i24", "v_mad_u64_u32", "v_mad_i64_i32")},
}  # fmt: skip
_ARITY = {
    name: 3 if re.search(r"3_|mad|lshl_add|lshl_or|add_lshl", name) else 1 if "mov" in name else 2
    for name in _RULES
}


def _shifted_sum(lanes: Lanes, sources: Sequence[str]) -> Stride:
    total, bits = lanes.sum(sources[:2]), sources[2]
    return None if total is None or not bits.isdigit() or int(bits) > 31 else total << int(bits)

"""Classify instructions: which unit executes them, and how many bytes a lane moves.

Sources: LLVM's AMDGPU instruction syntax and the CDNA3 instruction set architecture guide; NVIDIA's CUDA binary
utilities, section "Instruction Set Reference".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from runners.static_features.listing import Dialect, Instruction


class Kind(StrEnum):
    """List what instructions are counted as."""

    VECTOR = "vector"
    SCALAR = "scalar"
    MATRIX = "matrix"
    SPECIAL = "special"
    LOAD = "load"
    STORE = "store"
    LDS_LOAD = "lds_load"
    LDS_STORE = "lds_store"
    SCALAR_LOAD = "scalar_load"
    SCRATCH = "scratch"
    ATOMIC = "atomic"
    SHUFFLE = "shuffle"
    WAIT = "wait"
    BARRIER = "barrier"
    BRANCH = "branch"
    OTHER = "other"


@dataclass(frozen=True)
class Rule:
    """Give instructions whose name matches a kind; the first rule that matches counts."""

    pattern: re.Pattern[str]
    kind: Kind


def _rules(*pairs: tuple[str, Kind]) -> tuple[Rule, ...]:
    return tuple(Rule(re.compile(pattern), kind) for pattern, kind in pairs)


RULES = {
    Dialect.AMDGCN: _rules(
        (r"v_s?(mfmac?|wmma|wmmac)_", Kind.MATRIX),
        (r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_", Kind.SPECIAL),
        (
            r"v_(permlane|readlane|writelane|readfirstlane|mov_b32_dpp)|ds_(b?permute|swizzle)|v_\w+_dpp",
            Kind.SHUFFLE,
        ),
        (r"v_", Kind.VECTOR),
        (r"s_wait|s_nop|s_delay_alu|s_sleep", Kind.WAIT),
        (r"s_barrier", Kind.BARRIER),
        (r"s_(c?branch|setpc|swappc|call|endpgm|trap)", Kind.BRANCH),
        (r"s_(buffer_)?load|s_scratch_load", Kind.SCALAR_LOAD),
        (r"s_", Kind.SCALAR),
        (r"scratch_", Kind.SCRATCH),
        (
            r"(global|flat|buffer)_atomic|ds_(add|sub|min|max|inc|dec|cmp\w+|wrxchg|and|or|xor)_",
            Kind.ATOMIC,
        ),
        (r"(global|flat|buffer|tbuffer|image)_load", Kind.LOAD),
        (r"(global|flat|buffer|tbuffer|image)_store", Kind.STORE),
        (r"ds_(read|load)", Kind.LDS_LOAD),
        (r"ds_(write|store)", Kind.LDS_STORE),
    ),
    Dialect.SASS: _rules(
        (r"[HIQDBOF]?G?MMA\b|\w*GMMA\b|UTC\w*MMA", Kind.MATRIX),
        (r"MUFU\b", Kind.SPECIAL),
        (r"SHFL|VOTE|MATCH|REDUX|MOVM", Kind.SHUFFLE),
        (r"LDL|STL", Kind.SCRATCH),
        (r"ATOM|RED\b|UTMARED", Kind.ATOMIC),
        (r"LDGSTS|LDG|LD\b|TEX|TLD|UTMALDG|UBLKCP", Kind.LOAD),
        (r"STG|ST\b|UTMASTG", Kind.STORE),
        (r"LDSM|LDS", Kind.LDS_LOAD),
        (r"STSM|STS", Kind.LDS_STORE),
        (r"U?LDCU?\b", Kind.SCALAR_LOAD),
        (r"DEPBAR|WARPSYNC|NANOSLEEP|SYNCS|WARPGROUP|\w*FENCE|MEMBAR|ERRBAR|CCTL", Kind.WAIT),
        (r"BAR\b|UCGABAR", Kind.BARRIER),
        (r"BRA|BRX|JMP|EXIT|CALL|RET|BSSY|BSYNC|BREAK|KILL|YIELD|BPT", Kind.BRANCH),
        (r"NOP", Kind.OTHER),
        (r"U[A-Z]|R2UR|S2UR", Kind.SCALAR),
        (r"[A-Z]", Kind.VECTOR),
    ),
}
_AMD_WIDTHS = (
    (re.compile(r"dwordx(\d)"), 4), (re.compile(r"_b(\d+)"), 0), (re.compile(r"_[uif](\d+)"), 0),
)  # fmt: skip
_AMD_NAMED = {"byte": 1, "short": 2, "d16": 2, "dword": 4}
_SASS_WIDTH = re.compile(r"\.[USB]?(8|16|32|64|96|128)\b")
_FMA = re.compile(r"v_(pk_)?(fma|mac|mad|fmac|fmaak|fmamk|fmak|dot)\w*_(f|bf)?\d|[FHD]FMA2?\b|HFMA2")
_ADD = re.compile(r"v_(pk_)?(add|sub|subrev|mul)_(f16|f32|f64|bf16)|[FHD](ADD|MUL)2?\b")


def kind_of(dialect: Dialect, instruction: Instruction) -> Kind:
    """Return what an instruction counts as."""
    # Spilled registers move through ordinary memory instructions; only the compiler's comment or an address without
    # a vector register tells them from accesses to the kernel's own arrays.
    if "Folded" in instruction.comment or _is_scratch(instruction):
        return Kind.SCRATCH
    return _named(dialect, instruction.opcode)


# A kernel repeats few names many times.
@lru_cache(maxsize=4096)
def _named(dialect: Dialect, opcode: str) -> Kind:
    return next((rule.kind for rule in RULES[dialect] if rule.pattern.match(opcode)), Kind.OTHER)


def _is_scratch(instruction: Instruction) -> bool:
    return instruction.opcode.startswith("buffer_") and instruction.operands[1:2] == ("off",)


@lru_cache(maxsize=4096)
def width_bytes(dialect: Dialect, opcode: str) -> int:
    """Return how many bytes a lane moves with a memory instruction."""
    if dialect is Dialect.SASS:
        found = _SASS_WIDTH.search(opcode)
        return int(found[1]) // 8 if found else 4
    # ds_read2 and ds_write2 move two values at two addresses.
    return _amd_width(opcode) * (2 if re.match(r"ds_(read|write|load|store)2", opcode) or "2addr" in opcode else 1)


def _amd_width(opcode: str) -> int:
    for pattern, unit in _AMD_WIDTHS:
        if found := pattern.search(opcode):
            return max(1, int(found[1]) * unit if unit else int(found[1]) // 8)
    return next((size for name, size in _AMD_NAMED.items() if name in opcode), 4)


@lru_cache(maxsize=4096)
def flops_of(opcode: str) -> int:
    """Return the floating-point operations of a lane: 2 for a multiplication with addition; matrix units apart."""
    packed = 2 if "_pk_" in opcode or opcode.startswith(("HFMA2", "HADD2", "HMUL2")) else 1
    if _FMA.match(opcode):
        return 2 * packed
    return packed if _ADD.match(opcode) else 0

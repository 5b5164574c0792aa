"""Every matrix instruction of the emulation against plain products, by the layouts that AMD publishes."""

from __future__ import annotations

import ctypes
import random
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runners import emulation
from runners.backends import BuildRequest
from runners.job import Language, Limits, Source

pytestmark = [
    pytest.mark.processes,
    pytest.mark.hip,
    pytest.mark.skipif(shutil.which("clang++-19") is None, reason="needs clang-19"),
]
HEADER = Path(emulation.__file__).parent / "device" / "include" / "emulation" / "matrix.h"
LANES = 64
# -3 to 3 in the fnuz formats of gfx942: e4m3 has a bias of 8 and three bits of mantissa, e5m2 one of 16 and two.
E4M3 = {0: 0, 1: 0x40, 2: 0x48, 3: 0x4C, -1: 0xC0, -2: 0xC8, -3: 0xCC}
E5M2 = {0: 0, 1: 0x40, 2: 0x44, 3: 0x46, -1: 0xC0, -2: 0xC4, -3: 0xC6}
ENCODERS: dict[str, Callable[[int], bytes]] = {
    "f64": lambda value: struct.pack("<d", value),
    "f32": lambda value: struct.pack("<f", value),
    "f16": lambda value: struct.pack("<e", value),
    "bf16": lambda value: struct.pack("<f", value)[2:],
    "i8": lambda value: struct.pack("<b", value),
    "fp8": lambda value: bytes([E4M3[value]]),
    "bf8": lambda value: bytes([E5M2[value]]),
}

NUMBERS: dict[str, type[ctypes.c_double] | type[ctypes.c_float] | type[ctypes.c_int]] = {
    "double": ctypes.c_double,
    "float": ctypes.c_float,
    "int": ctypes.c_int,
}


@dataclass(frozen=True)
class Instruction:
    """Describe a matrix instruction: `blocks` products of m x k by k x m, and the types of its factors and result."""

    name: str
    m: int
    k: int
    blocks: int
    a: str
    b: str
    # C type and length of the vector that holds a lane's elements, or of the number that holds several.
    factor: tuple[str, int] = ("float", 1)
    cbsz: int = 0
    abid: int = 0
    blgp: int = 0

    @property
    def result(self) -> str:
        """Return the C type of the result's elements."""
        return {"f64": "double", "f32": "float", "i32": "int"}[self.name[:3]]

    @property
    def registers(self) -> int:
        """Return how many elements of the result a lane has."""
        return self.m * self.m * self.blocks // LANES

    @property
    def elements(self) -> int:
        """Return how many elements of a factor a lane has."""
        return self.m * self.k * self.blocks // LANES

    @property
    def symbol(self) -> str:
        """Return what the test's library calls it."""
        return f"run_{self.name}_{self.cbsz}_{self.abid}_{self.blgp}"

    def input_at(self, i: int, k: int, block: int) -> tuple[int, int]:
        """Return lane and element of row i of the first factor, or of column i of the second."""
        return block * self.m + k // self.elements * self.m * self.blocks + i, k % self.elements

    def output_at(self, i: int, j: int, block: int) -> tuple[int, int]:
        """Return lane and register of an element of the result: groups of four rows, of one in double precision."""
        height = 1 if self.result == "double" else 4
        groups = LANES // self.m
        blocks = max(1, LANES * height // (self.m * self.m))
        register = block * (self.m * self.m // LANES) + i // (height * groups) * height + i % height
        return block % blocks * self.m + i // height % groups * blocks * self.m + j, register


def instructions(
    kind: str, factor: tuple[str, int], shapes: str, suffix: str, result: str = "f32"
) -> Iterator[Instruction]:
    """Yield the instructions of a type, from shapes as `32x32x8:1` with the number of blocks last."""
    for shape in shapes.split():
        size, _, blocks = shape.partition(":")
        m, _, k = (int(number) for number in size.split("x"))
        yield Instruction(f"{result}_{size}{suffix}", m, k, int(blocks), kind, kind, factor)


EIGHT_BITS = [
    Instruction(f"f32_{m}x{m}x{k}_{a}_{b}", m, k, 1, a, b, ("long", 1))
    for m, k in ((16, 32), (32, 16))
    for a in ("fp8", "bf8")
    for b in ("fp8", "bf8")
]
GFX942 = [
    *instructions("f32", ("float", 1), "32x32x1:2 16x16x1:4 4x4x1:16 32x32x2:1 16x16x4:1", "f32"),
    *instructions("f16", ("_Float16", 4), "32x32x4:2 16x16x4:4 4x4x4:16 32x32x8:1 16x16x16:1", "f16"),
    *instructions("bf16", ("short", 4), "32x32x4:2 16x16x4:4 4x4x4:16 32x32x8:1 16x16x16:1", "bf16_1k"),
    *instructions("f32", ("float", 2), "32x32x4:1 16x16x8:1", "_xf32"),
    *instructions("i8", ("int", 1), "32x32x4:2 16x16x4:4 4x4x4:16", "i8", "i32"),
    *instructions("i8", ("long", 1), "32x32x16:1 16x16x32:1", "_i8", "i32"),
    *instructions("f64", ("double", 1), "16x16x4:1 4x4x4:4", "f64", "f64"),
    *EIGHT_BITS,
]
GFX950 = [
    *instructions("f16", ("_Float16", 8), "16x16x32:1 32x32x16:1", "_f16"),
    *instructions("bf16", ("__bf16", 8), "16x16x32:1 32x32x16:1", "_bf16"),
]
MODIFIED = [
    *(Instruction("f32_32x32x1f32", 32, 1, 2, "f32", "f32", cbsz=1, abid=abid) for abid in (0, 1)),
    *(Instruction("f32_4x4x1f32", 4, 1, 16, "f32", "f32", cbsz=cbsz, abid=3) for cbsz in (2, 4)),
    *(Instruction("f32_16x16x4f32", 16, 4, 1, "f32", "f32", blgp=blgp) for blgp in range(1, 8)),
]


# Each lane reads its elements in order, and writes its registers in order.
KERNEL = """
namespace {symbol} {{
{factor}
{result}
__global__ void kernel(const char* a, const char* b, const {number}* c, {number}* d) {{
  Factor x, y;
  __builtin_memcpy(&x, a + threadIdx.x * sizeof x, sizeof x);
  __builtin_memcpy(&y, b + threadIdx.x * sizeof y, sizeof y);
  union {{ Result all; {number} each[{registers}]; }} z;
  for (int r = 0; r < {registers}; ++r) z.each[r] = c[threadIdx.x * {registers} + r];
  z.all = __builtin_amdgcn_mfma_{name}(x, y, z.all, {modifiers});
  for (int r = 0; r < {registers}; ++r) d[threadIdx.x * {registers} + r] = z.each[r];
}}
extern "C" void {symbol}(const char* a, const char* b, const {number}* c, {number}* d) {{
  kernel<<<1, 64>>>(a, b, c, d);
}}
}}
"""


def typedef(name: str, element: str, count: int) -> str:
    """Return the definition of a type: a vector of elements, or the element itself."""
    vector = f" __attribute__((ext_vector_type({count})))" if count > 1 else ""
    return f"typedef {element} {name}{vector};"


def kernel(one: Instruction) -> str:
    """Return a kernel of one instruction, with the function that launches it."""
    return KERNEL.format(
        symbol=one.symbol,
        name=one.name,
        number=one.result,
        registers=one.registers,
        factor=typedef("Factor", *one.factor),
        result=typedef("Result", one.result, one.registers),
        modifiers=f"{one.cbsz}, {one.abid}, {one.blgp}",
    )


def library(every: list[Instruction], target: str, folder: Path) -> ctypes.CDLL:
    """Build all kernels for a target at once: most of a compilation is reading the headers."""
    folder.chmod(0o755)
    text = "#include <hip/hip_runtime.h>\n" + "".join(map(kernel, every))
    request = BuildRequest(Source(Language.HIP, text), every[0].symbol, target, folder, Limits())
    return ctypes.CDLL(str(emulation.build(request).loadable))


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ctypes.CDLL]:
    """Return a library for each of AMD's targets that has matrix instructions of its own."""
    kernels = {"gfx942": GFX942 + MODIFIED, "gfx950": GFX950}
    return {key: library(every, key, tmp_path_factory.mktemp(key)) for key, every in kernels.items()}


def laid_out(values: list[list[int]], kind: str) -> bytes:
    """Return the elements of a factor, by lane and element, in the bytes of a type."""
    return b"".join(ENCODERS[kind](value) for lane in values for value in lane)


def called(code: ctypes.CDLL, one: Instruction, a: bytes, b: bytes, c: list[int]) -> list[float]:
    """Return the result's registers, lane by lane."""
    number = NUMBERS[one.result]
    third, result = (number * len(c))(*c), (number * len(c))()
    buffers = (ctypes.create_string_buffer(a, len(a)), ctypes.create_string_buffer(b, len(b)), third, result)
    code.emu_begin_call(0)
    for buffer in buffers:
        code.emu_add_buffer(buffer, ctypes.c_size_t(ctypes.sizeof(buffer)), b"buffer")
    code[one.symbol](*buffers)
    return list(result)


def source_lane(lane: int, blgp: int) -> int:
    """Return the lane whose second factor a lane takes: halves, all turned by 16 lanes, or quarters, broadcast."""
    if blgp == 3:
        return (lane + 16) % LANES
    width = {0: 64, 1: 32, 2: 32}.get(blgp, 16)
    return lane % width + (32 if blgp == 2 else max(0, blgp - 4) * 16)


def products(one: Instruction, a: list[list[int]], b: list[list[int]], c: list[int]) -> list[int]:
    """Return the registers of D = A B + C, lane by lane, from the factors by lane and element."""
    found = list(c)
    for block in range(one.blocks):
        sent = block if one.cbsz == 0 else (block >> one.cbsz << one.cbsz) + one.abid
        for i in range(one.m):
            for j in range(one.m):
                lane, register = one.output_at(i, j, block)
                for k in range(one.k):
                    left, element = one.input_at(i, k, sent)
                    right, _ = one.input_at(j, k, block)
                    found[lane * one.registers + register] += (
                        a[left][element] * b[source_lane(right, one.blgp)][element]
                    )
    return found


def named(one: Instruction) -> str:
    return one.symbol.removeprefix("run_")


@pytest.mark.parametrize("one", GFX942 + GFX950 + MODIFIED, ids=named)
def test_a_matrix_instruction_computes_products(one: Instruction, libraries: dict[str, ctypes.CDLL]) -> None:
    """Take small integers, so that every sum is exact, in the lane maps of AMD's matrix instruction calculator."""
    draw = random.Random(one.symbol)
    a, b = ([[draw.randint(-3, 3) for _ in range(one.elements)] for _ in range(LANES)] for _ in "ab")
    c = [draw.randint(-99, 99) for _ in range(LANES * one.registers)]
    code = libraries["gfx950" if one in GFX950 else "gfx942"]
    found = called(code, one, laid_out(a, one.a), laid_out(b, one.b), c)
    assert found == products(one, a, b, c)


@pytest.mark.parametrize("one", GFX942 + GFX950, ids=named)
def test_the_layout_gives_every_register_of_a_lane_one_element(one: Instruction) -> None:
    size, blocks = range(one.m), range(one.blocks)
    outputs = {one.output_at(i, j, block) for i in size for j in size for block in blocks}
    inputs = {one.input_at(i, k, block) for i in size for k in range(one.k) for block in blocks}
    assert outputs == {(lane, register) for lane in range(LANES) for register in range(one.registers)}
    assert inputs == {(lane, element) for lane in range(LANES) for element in range(one.elements)}


def test_every_matrix_instruction_of_the_header_is_compared() -> None:
    text = HEADER.read_text()
    rows = set(re.findall(r"^EMU_MFMA\((\w+),", text, re.MULTILINE))
    rows |= {f"f32_{name}" for name in re.findall(r"^EMU_MFMA_FP8\((\w+),", text, re.MULTILINE)}
    rows |= set(re.findall(r" __builtin_amdgcn_mfma_(f64_\w+)\(", text))
    assert rows == {one.name for one in GFX942 + GFX950}

"""Device code in emulation: right kernels pass, faults are named, and what is not covered goes on unharmed."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.emulation import MUTANTS, Mutant, emulated, is_caught, seeds
from benchmarks.emulation_differential import Outputs, difference
from benchmarks.emulation_differential import emulated as computed_on
from benchmarks.emulation_kernels import KERNELS, Kernel
from runners import emulation
from runners.backends import BuildRequest
from runners.candidate.emulated import size_bytes
from runners.commands.reading import read_source
from runners.emulation.report import Stopped, notes, stopped
from runners.emulation.rewriting import NotCovered, rewritten
from runners.job import Flag, JobResult, Language, Limits, Source, Status
from runners.targets import target
from runners.verbs.building import build

pytestmark = [
    pytest.mark.processes,
    pytest.mark.hip,
    pytest.mark.skipif(shutil.which("clang++-19") is None, reason="needs clang-19"),
]
CALLS = Path(__file__).with_name("emulated_calls.py")
SNIPPETS = Path(__file__).parents[2] / "optimizer" / "knowledge" / "pages" / "gfx942"
# One of each kind; the others are the same faults in other kernels.
SHOWN = (
    "fp8_block_gemm/mfma.hip: lane map swapped",
    "fp8_block_gemm/mfma.hip: missing barrier after the load",
    "fp8_block_gemm/naive.hip: fn for fnuz (bias of one less)",
    "softmax_rows/rows.hip: LDS indexed by half waves (overflow)",
)


def written(name: str, kernel: str, launch: str, before: str) -> str:
    """Return a softmax called `name`, whose kernel `k(x, out, n)` has that body, with other functions `before` it."""
    return (
        f"{before}__global__ void k(const float* x, float* out, int64_t n) {{\n{kernel}\n}}\n"
        f'extern "C" void {name}(const float* x, float* out, int64_t rows, int64_t cols, hipStream_t stream) {{\n'
        f"{launch};\n}}\n"
    )


HEADERS = "#include <hip/hip_runtime.h>\n#include <cstdint>\n"
LAUNCH = "k<<<rows, 256, 0, stream>>>(x, out, cols)"


def softmax(kernel: str, launch: str = LAUNCH, before: str = "") -> JobResult:
    """Evaluate a softmax whose kernel `k(x, out, n)` has that body, with other functions `before` it."""
    return emulated("softmax_rows", Source(Language.HIP, HEADERS + written("softmax_rows", kernel, launch, before)))


def says(result: JobResult) -> str:
    return " ".join(result.reasons)


# Evaluating a kernel takes a build for its device, one for the emulation and two processes with torch. What the
# emulation finds is the same without the harness: the kernels below are built together, and each is called in a process
# of its own.


@dataclass(frozen=True)
class Called:
    """Hold how the calls of a kernel ended: why the emulation stopped them, if it did, and whether all were right."""

    stopped: Stopped | None
    right: bool
    notes: list[str]
    log: str

    @property
    def is_stopped(self) -> bool:
        """Return whether the emulation stopped a call."""
        return self.stopped is not None

    def stopped_as(self, status: Status, *words: str) -> bool:
        """Return whether the emulation stopped a call with that verdict and these words in its reason."""
        found = self.stopped
        return found is not None and found.status is status and all(word in found.text for word in words)


@dataclass(frozen=True)
class Library:
    """Collect kernels that are built together, behind what all of them may use. Each stands in a namespace."""

    shared: str = ""
    texts: list[str] = field(default_factory=list)

    def add(self, kernel: str, launch: str = LAUNCH, before: str = "") -> str:
        """Add a softmax, see `written`, and return the name by which its calls are found."""
        name = f"case_{len(self.texts)}"
        # Lines count as if the kernel stood alone: its body begins in line 4.
        self.texts.append(f"#line 3\nnamespace in_{name} {{ {written(name, kernel, launch, before)}}}\n")
        return name

    @property
    def text(self) -> str:
        """Return the source of all kernels."""
        return HEADERS + self.shared + "".join(self.texts)

    def calls(self, folder: Path) -> dict[str, Called]:
        """Build the library, call every kernel, and return how that ended."""
        made = built(folder, self.text, "case_0")
        names = [f"case_{number}" for number in range(len(self.texts))]
        done = subprocess.run(
            [sys.executable, "-I", str(CALLS), str(made), *names],
            env={**os.environ, "KERNELSCI_EMULATION_S": "5"},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        found = json.loads(done.stdout)
        for name, one in found.items():
            assert one["ended"] or stopped(one["log"]), f"{name}: {one['log'][-400:]}"
        return {
            name: Called(stopped(one["log"]), one["right"], notes(one["log"]), one["log"])
            for name, one in found.items()
        }


def built(folder: Path, text: str, symbol: str = "run") -> Path:
    """Build a source for the emulation of an MI300."""
    folder.chmod(0o755)
    request = BuildRequest(Source(Language.HIP, text), symbol, "gfx942", folder, Limits())
    return emulation.build(request).loadable


KERNELS_OF_FAULTS = Library()
case = KERNELS_OF_FAULTS.add


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Called]:
    """Return how the calls of every `case` ended."""
    return KERNELS_OF_FAULTS.calls(tmp_path_factory.mktemp("cases"))


# ---- what is right --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", seeds(), ids=lambda path: f"{path.parents[1].name}-{path.stem}")
def test_every_shipped_seed_is_right_in_emulation(path: Path) -> None:
    result = emulated(path.parents[1].name, read_source(path))
    assert result.status is Status.CORRECT, says(result)
    assert Flag.EMULATED in result.flags and Flag.NOT_EXECUTED in result.flags
    assert result.cases and all(case.ok for case in result.cases) and result.speedup is None


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, id=mutant.name, marks=() if mutant.name in SHOWN else pytest.mark.long)
        for mutant in MUTANTS
    ],
)
def test_every_mutant_of_a_seed_is_caught(mutant: Mutant) -> None:
    result = emulated(mutant.problem, Source(Language.HIP, mutant.text()))
    assert is_caught(result), f"{result.status}: {says(result)} {result.flags}"


@pytest.fixture(scope="module")
def computed() -> dict[str, dict[str, Outputs]]:
    """Return what the kernels of the common subset compute on each device, all of them built and called at once."""
    return {target: computed_on(target) for target in ("sm_90", "gfx942")}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_kernel_of_the_common_subset_computes_the_same_as_cuda_and_as_hip(
    kernel: Kernel, computed: dict[str, dict[str, Outputs]]
) -> None:
    """Expect agreement although one has warps of 32 lanes and the other waves of 64."""
    as_cuda, as_hip = (computed[target][kernel.name] for target in ("sm_90", "gfx942"))
    assert any(as_cuda["out"]) or any(as_cuda["words"])
    assert difference(kernel, as_cuda, as_hip) == ""


# ---- faults ---------------------------------------------------------------------------------------------------------


def test_an_endless_loop_ends_as_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.emulation.library.KERNELS_S", 0.5)
    result = softmax("volatile int go = 1; while (go) {} out[0] = 1;")
    assert result.status is Status.TIMEOUT and "did not end in its time" in says(result)


RECURSION = case(
    "int q = 0; out[0] = f(threadIdx.x, &q);",
    "k<<<1, 64, 0, stream>>>(x, out, cols)",
    "__device__ __noinline__ int f(int n, int* p) { int a[64]; a[n & 63] = n; *p += a[(n * 7) & 63];"
    " return n < 0 ? 0 : f(n + 1, a) + a[3]; }\n",
)


def test_recursion_without_end_is_named(calls: dict[str, Called]) -> None:
    assert calls[RECURSION].stopped_as(Status.CRASHED, "stack overflowed"), calls[RECURSION]


def test_a_flood_of_prints_does_not_hide_a_wrong_result() -> None:
    result = softmax('for (int i = 0; i < 100000; ++i) printf("line %d\\n", i); out[0] = 1;')
    assert result.status is Status.INCORRECT and "elements wrong" in says(result)


def test_too_much_static_lds_does_not_build() -> None:
    result = softmax("__shared__ float b[25600]; b[threadIdx.x] = 1; __syncthreads(); out[0] = b[threadIdx.x * 2];")
    assert result.status is Status.BUILD_FAILED and "exceeds limit" in says(result)


DYNAMIC_LDS = case("out[0] = 1;", "k<<<rows, 256, 100000, stream>>>(x, out, cols)")
BIG_AND_DYNAMIC_LDS = case(
    "__shared__ float big[12000]; extern __shared__ float more[];\nbig[threadIdx.x] = more[threadIdx.x] = 1;"
    " out[0] = 1;",
    "k<<<rows, 256, 40000, stream>>>(x, out, cols)",
)
LDS_OF_ANOTHER = case(
    "extern __shared__ float s[]; s[threadIdx.x] = 1; out[0] = s[0];",
    "other<<<1, 1>>>(out); k<<<1, 1, 40000, stream>>>(x, out, cols)",
    "__global__ void other(float* out) {\n__shared__ float big[12000]; big[0] = 1; out[0] = big[0]; }\n",
)
LARGE_BLOCK = case("out[0] = 1;", "k<<<rows, 2048, 0, stream>>>(x, out, cols)")


def test_too_much_dynamic_lds_cannot_be_launched(calls: dict[str, Called]) -> None:
    assert calls[DYNAMIC_LDS].stopped_as(Status.CRASHED, "asks for 100000 bytes of LDS"), calls[DYNAMIC_LDS]


def test_static_and_dynamic_lds_together_cannot_exceed_the_limit(calls: dict[str, Called]) -> None:
    found = calls[BIG_AND_DYNAMIC_LDS]
    assert found.stopped_as(Status.CRASHED, "40000 bytes of LDS besides 48000 static ones"), found


def test_lds_of_other_kernels_does_not_count_towards_the_limit(calls: dict[str, Called]) -> None:
    assert not calls[LDS_OF_ANOTHER].is_stopped and not calls[LDS_OF_ANOTHER].right, calls[LDS_OF_ANOTHER]


def test_a_block_of_2048_threads_cannot_be_launched(calls: dict[str, Called]) -> None:
    assert calls[LARGE_BLOCK].stopped_as(Status.CRASHED, "cannot be launched"), calls[LARGE_BLOCK]


BARRIERS = case("if (threadIdx.x % 2)\n__syncthreads();\nelse\n__syncthreads();\nout[0] = 1;")


def test_threads_at_different_barriers_are_named_by_line(calls: dict[str, Called]) -> None:
    found = calls[BARRIERS]
    assert found.stopped_as(Status.INCORRECT, "different barriers", "line 5", "line 7"), found


ROWS = """x += blockIdx.x * n; out += blockIdx.x * n; float top = -INFINITY, sum = 0;
for (int64_t c = 0; c < n; ++c) top = fmaxf(top, x[c]);
for (int64_t c = 0; c < n; ++c) sum += expf(x[c] - top);
for (int64_t c = 0; c < n; ++c) out[c] = expf(x[c] - top) / sum;
"""
ENDED_LANES = "lanes of its wave that have ended"
ONE_LANE = f"if (threadIdx.x == 0) {{ {ROWS} __syncthreads(); }}"
# Every lane, one lane and one whole wave come to the barrier.
AT_BARRIER = {
    case(f"if (threadIdx.x == 0) {{ {ROWS} }}\n__syncthreads();"): False,
    case(ONE_LANE): True,
    case(f"if (threadIdx.x >= 64) return; if (threadIdx.x == 0) {{ {ROWS} }}\n__syncthreads();"): False,
}


@pytest.mark.parametrize(("name", "noted"), AT_BARRIER.items(), ids=["every lane", "one lane", "one whole wave"])
def test_a_barrier_that_ended_lanes_of_a_wave_never_reach_is_noted(
    name: str, noted: bool, calls: dict[str, Called]
) -> None:
    """Expect no fault, since neither AMD's nor NVIDIA's devices wait for threads that have ended."""
    found = calls[name]
    assert found.right and not found.is_stopped, found
    assert any(ENDED_LANES in note for note in found.notes) is noted, found


def test_what_the_emulation_notes_of_a_right_kernel_is_in_the_log_of_its_stage() -> None:
    result = softmax(ONE_LANE)
    assert result.status is Status.CORRECT and Flag.EMULATED in result.flags, says(result)
    assert ENDED_LANES in next(stage.log for stage in result.stages if stage.name == "emulation")


def test_a_write_behind_the_output_names_buffer_and_thread() -> None:
    result = softmax("out[n * gridDim.x + threadIdx.x] = 1;")
    assert result.status is Status.CRASHED
    assert "wrote 4 bytes" in says(result) and "output 0" in says(result) and "thread (0, 0, 0)" in says(result)


NO_DYNAMIC_LDS = case("extern __shared__ float s[]; s[threadIdx.x] = 1; out[0] = s[threadIdx.x];")
HOST_MEMORY = case("out[0] = x[0];", "float* h = new float[4]; k<<<1, 64, 0, stream>>>(h, out, cols)")
RACE = case("__shared__ float s[256]; s[threadIdx.x] = 1; out[0] = s[threadIdx.x ^ 64];")


def test_dynamic_lds_that_the_launch_did_not_ask_for_is_named(calls: dict[str, Called]) -> None:
    assert calls[NO_DYNAMIC_LDS].stopped_as(Status.CRASHED, "asked for 0 bytes"), calls[NO_DYNAMIC_LDS]


def test_memory_of_the_host_is_no_memory_of_the_device(calls: dict[str, Called]) -> None:
    assert calls[HOST_MEMORY].stopped_as(Status.CRASHED, "no memory of the device"), calls[HOST_MEMORY]


def test_lds_that_nobody_wrote_is_named_beside_the_wrong_result() -> None:
    result = softmax(
        "__shared__ float s[256]; if (n < 0) s[threadIdx.x] = 1; __syncthreads(); out[0] = s[threadIdx.x];"
    )
    assert result.status is Status.INCORRECT and "which nothing had written" in says(result)


def test_a_race_between_waves_is_found_although_the_result_may_be_right(calls: dict[str, Called]) -> None:
    assert calls[RACE].stopped_as(Status.INCORRECT, "no barrier between the two"), calls[RACE]


# These have a library of their own: the array must have no other kernel's arrays beside it.
PLACED = Library(
    """__device__ __noinline__ void put(float* p, int i, float v) { p[i] = v; }
__device__ float global[64]; __device__ int filled[3] = {1, 2, 3};
__device__ void placed(int index, float* out, int64_t n) {
  __shared__ float s[256]; put(s, index, 1.0f); __syncthreads();
  out[0] = s[threadIdx.x] + global[threadIdx.x % 64] + filled[0];
  __syncthreads();
  if (threadIdx.x == 0) global[0] = filled[n % 3]++;
}
"""
)
INSIDE = PLACED.add("placed(threadIdx.x, out, n);", launch="k<<<1, 256>>>(x, out, cols)")
OUTSIDE = {
    index: PLACED.add(f"placed({index}, out, n);")
    for index in ("256 + threadIdx.x", "256 + 1000 + threadIdx.x", "int(threadIdx.x) - 256", "60000 + threadIdx.x")
}


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Called]:
    """Return how the calls of the kernels in `PLACED` ended."""
    return PLACED.calls(tmp_path_factory.mktemp("placed"))


@pytest.mark.parametrize("name", OUTSIDE.values(), ids=OUTSIDE)
def test_an_index_far_outside_an_array_of_lds_is_found_in_another_function(
    name: str, placed: dict[str, Called]
) -> None:
    """Write through a pointer whose array the compiler does not see, to what is our own state on the host."""
    wanted = "the shared variable s, which has 1024 bytes"
    assert placed[name].stopped_as(Status.CRASHED, wanted), placed[name]


def test_an_index_inside_an_array_of_lds_is_right_in_another_function(placed: dict[str, Called]) -> None:
    assert not placed[INSIDE].is_stopped, placed[INSIDE]


CONSTANTS = case(
    'out[0] = get(table, n % 4) + first("abc", fixed);',
    before="""__constant__ float table[4] = {1, 2, 3, 4}; __device__ const int fixed[2] = {5, 6};
    __device__ __noinline__ float get(const float* p, int i) { return p[i]; }
    __device__ __noinline__ int first(const char* text, const int* p) { return text[0] + p[1]; }\n""",
)


def test_constants_and_tables_of_the_file_may_be_read(calls: dict[str, Called]) -> None:
    """Read them through a pointer, since the compiler checks no access that it knows to be one of a constant."""
    assert not calls[CONSTANTS].is_stopped and not calls[CONSTANTS].right, calls[CONSTANTS]


SUMS = """__device__ float total[4096], top[4096];
__global__ void begin(const float* x, int64_t n) {
  total[blockIdx.x] = 0; top[blockIdx.x] = -INFINITY;
  for (int64_t c = 0; c < n; ++c) top[blockIdx.x] = fmaxf(top[blockIdx.x], x[blockIdx.x * n + c]);
}
__global__ void divide(float* out, int64_t n) {
  for (int64_t c = threadIdx.x; c < n; c += 256) out[blockIdx.x * n + c] /= total[blockIdx.x];
}
"""
# Sums by the threads of one block, by the first threads of four blocks, and by blocks that take turns.
WITHIN = """for (int64_t c = threadIdx.x; c < n; c += 256) {
  const float e = expf(x[blockIdx.x * n + c] - top[blockIdx.x]); out[blockIdx.x * n + c] = e;
  atomicAdd(&total[blockIdx.x], e); }"""
ACROSS = """const int64_t row = blockIdx.x / 4; float sum = 0; for (int64_t c = blockIdx.x % 4; c < n; c += 4) {
  const float e = expf(x[row * n + c] - top[row]); out[row * n + c] = e; sum += e; }
atomicAdd(&total[row], sum);"""
LOCKED = "while (atomicExch(&lock, 1)) {} total[row] += sum; __threadfence(); atomicExch(&lock, 0);"
BEHIND_ANOTHER = "atomicAdd(&lock, 1); __syncthreads(); total[row] += sum"


def summed(body: str, blocks: str, threads: int) -> str:
    """Add a softmax whose kernel `body` adds the exponentials of each row to the variable `total`."""
    launch = (
        f"begin<<<rows, 1>>>(x, cols); k<<<{blocks}, {threads}>>>(x, out, cols); divide<<<rows, 256>>>(out, cols)"
    )
    return case(body, launch, f"{SUMS}__device__ int lock;\n")


RIGHT_SUMS = {
    "within a block": summed(WITHIN, "rows", 256),
    "across blocks": summed(ACROSS, "rows * 4", 1),
    "across blocks in turn": summed(ACROSS.replace("atomicAdd(&total[row], sum);", LOCKED), "rows * 4", 1),
}
LOST_SUMS = {
    "within a block": (
        summed(WITHIN.replace("atomicAdd(&total[blockIdx.x], e)", "total[blockIdx.x] += e"), "rows", 256),
        "no barrier",
    ),
    "across blocks": (
        summed(ACROSS.replace("atomicAdd(&total[row], sum)", "total[row] += sum"), "rows * 4", 1),
        "no atomic operation",
    ),
    "across blocks behind another atomic operation": (
        summed(ACROSS.replace("atomicAdd(&total[row], sum)", BEHIND_ANOTHER), "rows * 4", 1),
        "no atomic operation",
    ),
}


@pytest.mark.parametrize("name", RIGHT_SUMS.values(), ids=RIGHT_SUMS)
def test_sums_by_atomic_operations_are_right(name: str, calls: dict[str, Called]) -> None:
    assert calls[name].right and not calls[name].is_stopped, calls[name]


@pytest.mark.parametrize(("name", "named"), LOST_SUMS.values(), ids=LOST_SUMS)
def test_a_sum_that_is_not_atomic_is_a_race(name: str, named: str, calls: dict[str, Called]) -> None:
    """Replace the atomic operation of a right kernel by `+=`, which loses updates on the device."""
    assert calls[name].stopped_as(Status.INCORRECT, named, "the variable total"), calls[name]


PLAIN_SUM = case("if (threadIdx.x == 0) out[0] += x[0];", "k<<<4, 64>>>(x, out, cols)")


def test_a_plain_sum_of_blocks_in_a_buffer_is_a_race(calls: dict[str, Called]) -> None:
    found = calls[PLAIN_SUM]
    assert found.stopped_as(Status.INCORRECT, "byte 0 of output 0", "no atomic operation"), found


def marked(write: str) -> str:
    """Add a kernel whose threads read a variable in LDS after they have written it."""
    return case(f"__shared__ int mark;\n{write}\n__syncthreads(); out[0] = mark;")


DIFFERENT_VALUES = marked("mark = threadIdx.x;")
NO_DIFFERENCE = {
    "the same value": marked("mark = 7;"),
    "values that one thread replaces": marked(
        "mark = threadIdx.x;\n__syncthreads(); if (threadIdx.x == 3) mark = 3;"
    ),
}


def test_threads_that_write_different_values_to_a_byte_of_lds_are_a_race_once_it_is_read(
    calls: dict[str, Called],
) -> None:
    assert calls[DIFFERENT_VALUES].stopped_as(Status.INCORRECT, "wrote different values"), calls[DIFFERENT_VALUES]


@pytest.mark.parametrize("name", NO_DIFFERENCE.values(), ids=NO_DIFFERENCE)
def test_threads_may_write_to_one_byte_of_lds_what_makes_no_difference(name: str, calls: dict[str, Called]) -> None:
    assert not calls[name].is_stopped and not calls[name].right, calls[name]


# An old reduction, which relies on the lanes of a wave going in step.
IN_STEP = case(
    """volatile __shared__ float s[64]; float v = 0;
    for (int64_t c = threadIdx.x; c < n; c += 64) v += expf(x[blockIdx.x * n + c]);
    s[threadIdx.x] = v;
    if (threadIdx.x < 32) { for (int d = 32; d; d /= 2) s[threadIdx.x] = s[threadIdx.x] + s[threadIdx.x + d & 63]; }
    __syncthreads();
    for (int64_t c = threadIdx.x; c < n; c += 64) out[blockIdx.x * n + c] = expf(x[blockIdx.x * n + c]) / s[0];""",
    "k<<<rows, 64, 0, stream>>>(x, out, cols)",
)


def test_lanes_of_a_wave_may_rely_on_volatile_lds(calls: dict[str, Called]) -> None:
    assert not calls[IN_STEP].is_stopped and "race" not in calls[IN_STEP].log, calls[IN_STEP]


def test_the_compiler_of_the_device_takes_the_kernels_whose_calls_are_looked_at() -> None:
    for library in (KERNELS_OF_FAULTS, PLACED):
        report = build(Source(Language.HIP, library.text), target("gfx942"), None)
        assert report.ok, report.log


# ---- what is not covered --------------------------------------------------------------------------------------------

CUBE = "out[0] = __builtin_amdgcn_cubeid(x[0], x[0], x[0]);"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ('float a = x[0]; asm volatile("v_add_f32 %0, %0, %0" : "+v"(a)); out[0] = a;', "v_add_f32"),
        # The compiler of the emulation finds it missing, see the test below.
        pytest.param(CUBE, "__builtin_amdgcn_cubeid", marks=pytest.mark.long),
        (
            "out[0] = float(__builtin_amdgcn_mfma_f64_4x4x4f64(x[0], x[0], 0.0, 0, 0, 1));",
            "modifiers of a matrix instruction in double precision",
        ),
    ],
)
def test_what_is_not_covered_is_named_and_the_candidate_goes_on(body: str, named: str) -> None:
    result = softmax(body)
    assert result.status is Status.CORRECT and result.build is not None and result.build.ok
    assert Flag.NOT_EMULATED in result.flags and Flag.EMULATED not in result.flags
    assert named in next(stage.log for stage in result.stages if stage.name == "emulation")


def test_a_builtin_that_is_not_covered_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotCovered, match=r"__builtin_amdgcn_cubeid is not covered \(line 4\)"):
        built(tmp_path, HEADERS + written("run", CUBE, LAUNCH, ""))


WAITING = case('asm volatile("s_waitcnt vmcnt(0)\\n\\ts_barrier" ::: "memory"); out[0] = 1;')


def test_assembly_that_only_waits_is_covered(calls: dict[str, Called]) -> None:
    assert not calls[WAITING].is_stopped, calls[WAITING]


# ---- matrix instructions against plain products -------------------------------------------------------------------


def floats_as_bfloat16(values: list[float]) -> list[int]:
    return [struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in values]


# Kernels of the knowledge pages, the types of their factors, the size of a tile, and k.
MATRICES = [
    ("mfma_16x16", "tile", "uint16_t", 16, 64),
    ("mfma_32x32", "tile_bf16", "uint16_t", 32, 32),
    ("mfma_32x32", "tile_fp8", "uint8_t", 32, 32),
]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Return a library of every snippet of the knowledge pages, each in a namespace, since names come twice."""
    text = HEADERS
    for path in sorted(SNIPPETS.glob("*.hip")):
        plain = re.sub(r"^#include.*$", "", path.read_text(), flags=re.MULTILINE)
        plain = plain.replace('extern "C" __global__', "__global__")
        text += f'#line 1 "{path.name}"\nnamespace {path.stem} {{ {plain}\n}}\n'
    for page, kernel, element, _, _ in MATRICES:
        text += f'extern "C" void run_{kernel}(const {element}* a, const {element}* b, float* c, int k) '
        text += f"{{ {page}::{kernel}<<<1, 64>>>(a, b, c, k); }}\n"
    return ctypes.CDLL(str(built(tmp_path_factory.mktemp("pages"), text, f"run_{MATRICES[0][1]}")))


def called(code: ctypes.CDLL, kernel: str, k: int, a: list[int], b: list[int], size: int, kind: Any) -> list[float]:
    """Return the `size` x `size` tile that a kernel computes of `a`, `b` and `k`; small integers, so that every sum is
    exact."""
    left, right = (kind * len(a))(*a), (kind * len(b))(*b)
    tile = (ctypes.c_float * (size * size))()
    code.emu_begin_call(0)
    for buffer in (left, right, tile):
        code.emu_add_buffer(buffer, ctypes.c_size_t(ctypes.sizeof(buffer)), b"buffer")
    code[f"run_{kernel}"](left, right, tile, ctypes.c_int(k))
    return list(tile)


@pytest.mark.parametrize(
    ("kernel", "element", "size", "k"), [one[1:] for one in MATRICES], ids=[one[1] for one in MATRICES]
)
def test_the_matrix_kernels_of_the_knowledge_pages_compute_products(
    kernel: str, element: str, size: int, k: int, pages: ctypes.CDLL
) -> None:
    """They were written from AMD's documents, before the emulation."""
    a = [(i * 7 + i // k * 3) % 5 - 2 for i in range(size * k)]
    b = [(i * 5 + i // k) % 7 - 3 for i in range(size * k)]
    if element == "uint8_t":
        # e4m3fnuz with a bias of 8: 1 is 0x40, 2 is 0x48, 3 is 0x4c.
        code = {0: 0, 1: 0x40, 2: 0x48, 3: 0x4C, -1: 0xC0, -2: 0xC8, -3: 0xCC}
        coded = [[code[value] for value in values] for values in (a, b)]
    else:
        coded = [floats_as_bfloat16([float(value) for value in values]) for values in (a, b)]
    kind = ctypes.c_uint8 if element == "uint8_t" else ctypes.c_uint16
    found = called(pages, kernel, k, coded[0], coded[1], size, kind)
    wanted = [sum(a[i * k + p] * b[j * k + p] for p in range(k)) for i in range(size) for j in range(size)]
    assert found == wanted


def test_every_snippet_of_the_knowledge_pages_is_covered(pages: ctypes.CDLL) -> None:
    """What is not covered is named by the build of their library, which then fails."""
    assert len(list(SNIPPETS.glob("*.hip"))) >= 10 and pages.emu_begin_call


# ---- the parts ------------------------------------------------------------------------------------


def test_launches_become_calls_wherever_they_stand() -> None:
    text = 'f<int, (2 > 1)><<<dim3(1, 2), 64>>>(a, g(b), "<<<"); // k<<<1, 2>>>(x)\nns::k <<<1, 2, 0, s>>> ();'
    made = rewritten(text)
    assert '::emu::Launch("f<int, (2 > 1)>", dim3(1, 2), 64)' in made and ', a, g(b), "<<<")' in made
    assert "// k<<<1, 2>>>(x)" in made and '::emu::Launch("ns::k", 1, 2, 0, s)' in made
    assert made.count("\n") == text.count("\n")


def test_dynamic_shared_memory_becomes_a_pointer() -> None:
    made = rewritten("extern __shared__ __align__(16) unsigned char smem[];")
    assert "unsigned char* const smem" in made and "extern" not in made


def test_malformed_text_is_left_to_the_compiler() -> None:
    for text in (
        "k<<<1, 2",
        "<<<>>>",
        "k<<<1>>>(",
        "asm volatile(",
        '"unclosed',
        "/* unclosed",
        "extern __shared__",
    ):
        assert isinstance(rewritten(text), str)


@pytest.mark.parametrize(
    "text",
    [
        "k" * 100_000 + "<<<1>>>(x)",
        "a::" * 30_000 + " <<<1>>>(x)",
        "extern" + " " * 150_000 + "__shared__",
        "extern __shared__ " + "a " * 70_000,
        'R"(' * 20_000,
        "k<<<" * 299,
        "/*" * 90_000,
        "(" * 100_000 + "<<<1>>>(" + "(" * 90_000,
    ],
)
def test_hostile_text_is_rewritten_within_seconds(text: str) -> None:
    """Rewrite texts on which an expression that backtracks would take hours."""
    started = time.monotonic()
    rewritten(text)
    assert time.monotonic() - started < 10


def test_assembly_with_results_is_not_covered() -> None:
    with pytest.raises(NotCovered, match="line 2"):
        rewritten('\nasm("s_waitcnt 0" : "=r"(a));')


def test_what_the_emulation_says_is_read_from_the_end_of_a_log() -> None:
    log = "x\nemulation: note: odd\nemulation: race: read byte 4\n"
    found = stopped(log)
    assert found is not None and found.status is Status.INCORRECT and found.text == "read byte 4"
    assert notes(log) == ["odd"] and stopped("emulation: nonsense: x") is None


def test_the_bytes_of_a_tensor_follow_from_its_layout() -> None:
    spec = {"dtype": "float8_e4m3fnuz", "shape": [3, 5], "strides": [1, 4]}
    assert size_bytes(spec) == 1 + 2 + 16
    assert size_bytes({"dtype": "bool", "shape": [4], "strides": [1]}) == 4
    assert size_bytes({"dtype": "bfloat16", "shape": [0, 4], "strides": [4, 1]}) == 0

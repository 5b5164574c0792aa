"""Device code in emulation: right kernels pass, faults are named, and what is not covered goes on unharmed."""

from __future__ import annotations

import ctypes
import shutil
import struct
import time
from pathlib import Path

import pytest

from benchmarks.emulation import MUTANTS, Mutant, emulated, is_caught, seeds
from benchmarks.emulation_differential import Outputs, difference
from benchmarks.emulation_differential import emulated as computed_on
from benchmarks.emulation_kernels import KERNELS, Kernel
from runners import emulation
from runners.backends import BuildRequest
from runners.candidate.emulated import size_bytes
from runners.commands.reading import read_source
from runners.emulation.report import notes, stopped
from runners.emulation.rewriting import NotCovered, rewritten
from runners.job import Flag, JobResult, Language, Limits, Source, Status

pytestmark = [
    pytest.mark.processes,
    pytest.mark.hip,
    pytest.mark.skipif(shutil.which("clang++-19") is None, reason="needs clang-19"),
]
SNIPPETS = Path(__file__).parents[2] / "optimizer" / "knowledge" / "pages" / "gfx942"
# One of each kind; the others are the same faults in other kernels.
SHOWN = (
    "lane map swapped",
    "missing barrier after the load",
    "fn for fnuz (bias of one less)",
    "LDS indexed by half",
)


def softmax(kernel: str, launch: str = "k<<<rows, 256, 0, stream>>>(x, out, cols)", before: str = "") -> JobResult:
    """Evaluate a softmax whose kernel `k(x, out, n)` has that body, with other functions `before` it."""
    text = (
        f"#include <hip/hip_runtime.h>\n#include <cstdint>\n{before}"
        f"__global__ void k(const float* x, float* out, int64_t n) {{\n{kernel}\n}}\n"
        'extern "C" void softmax_rows(const float* x, float* out, int64_t rows, int64_t cols, hipStream_t stream) {\n'
        f"{launch};\n}}\n"
    )
    return emulated("softmax_rows", Source(Language.HIP, text))


def says(result: JobResult) -> str:
    return " ".join(result.reasons)


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
        pytest.param(mutant, id=mutant.name, marks=() if mutant.fault.startswith(SHOWN) else pytest.mark.long)
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


def test_an_endless_loop_ends_as_a_timeout() -> None:
    result = softmax("volatile int go = 1; while (go) {} out[0] = 1;")
    assert result.status is Status.TIMEOUT and "did not end in its time" in says(result)


def test_recursion_without_end_is_named() -> None:
    text = "__device__ __noinline__ int f(int n, int* p) { int a[64]; a[n & 63] = n; *p += a[(n * 7) & 63];"
    text += " return n < 0 ? 0 : f(n + 1, a) + a[3]; }\n"
    source = "#include <hip/hip_runtime.h>\n#include <cstdint>\n" + text
    source += "__global__ void k(float* out) { int q = 0; out[0] = f(threadIdx.x, &q); }\n"
    source += 'extern "C" void softmax_rows(const float* x, float* out, int64_t, int64_t, hipStream_t s)'
    source += " { k<<<1, 64, 0, s>>>(out); }\n"
    result = emulated("softmax_rows", Source(Language.HIP, source))
    assert result.status is Status.CRASHED and "stack overflowed" in says(result)


def test_a_flood_of_prints_does_not_hide_a_wrong_result() -> None:
    result = softmax('for (int i = 0; i < 100000; ++i) printf("line %d\\n", i); out[0] = 1;')
    assert result.status is Status.INCORRECT and "elements wrong" in says(result)


def test_too_much_static_lds_does_not_build() -> None:
    result = softmax("__shared__ float b[25600]; b[threadIdx.x] = 1; __syncthreads(); out[0] = b[threadIdx.x * 2];")
    assert result.status is Status.BUILD_FAILED and "exceeds limit" in says(result)


def test_too_much_dynamic_lds_cannot_be_launched() -> None:
    result = softmax("out[0] = 1;", "k<<<rows, 256, 100000, stream>>>(x, out, cols)")
    assert result.status is Status.CRASHED and "asks for 100000 bytes of LDS" in says(result)


def test_static_and_dynamic_lds_together_cannot_exceed_the_limit() -> None:
    body = "__shared__ float big[12000]; extern __shared__ float more[];\nbig[threadIdx.x] = more[threadIdx.x] = 1;"
    result = softmax(f"{body} out[0] = 1;", "k<<<rows, 256, 40000, stream>>>(x, out, cols)")
    assert result.status is Status.CRASHED and "40000 bytes of LDS besides 48000 static ones" in says(result)


def test_lds_of_other_kernels_does_not_count_towards_the_limit() -> None:
    other = "__global__ void other(float* out) {\n__shared__ float big[12000]; big[0] = 1; out[0] = big[0]; }\n"
    body = "extern __shared__ float s[]; s[threadIdx.x] = 1; out[0] = s[0];"
    result = softmax(body, "other<<<1, 1>>>(out); k<<<1, 1, 40000, stream>>>(x, out, cols)", other)
    assert result.status is Status.INCORRECT and "elements wrong" in says(result)


def test_a_block_of_2048_threads_cannot_be_launched() -> None:
    result = softmax("out[0] = 1;", "k<<<rows, 2048, 0, stream>>>(x, out, cols)")
    assert result.status is Status.CRASHED and "cannot be launched" in says(result)


def test_threads_at_different_barriers_are_named_by_line() -> None:
    result = softmax("if (threadIdx.x % 2)\n__syncthreads();\nelse\n__syncthreads();\nout[0] = 1;")
    assert result.status is Status.INCORRECT
    assert "different barriers" in says(result) and "line 5" in says(result) and "line 7" in says(result)


ROWS = """x += blockIdx.x * n; out += blockIdx.x * n; float top = -INFINITY, sum = 0;
for (int64_t c = 0; c < n; ++c) top = fmaxf(top, x[c]);
for (int64_t c = 0; c < n; ++c) sum += expf(x[c] - top);
for (int64_t c = 0; c < n; ++c) out[c] = expf(x[c] - top) / sum;
"""


@pytest.mark.parametrize(
    ("body", "noted"),
    [
        (f"if (threadIdx.x == 0) {{ {ROWS} }}\n__syncthreads();", False),
        (f"if (threadIdx.x == 0) {{ {ROWS} __syncthreads(); }}", True),
        (f"if (threadIdx.x >= 64) return; if (threadIdx.x == 0) {{ {ROWS} }}\n__syncthreads();", False),
    ],
    ids=["every lane", "one lane", "one whole wave"],
)
def test_a_barrier_that_ended_lanes_of_a_wave_never_reach_is_noted(body: str, noted: bool) -> None:
    """Expect no fault, since neither AMD's nor NVIDIA's devices wait for threads that have ended."""
    result = softmax(body)
    assert result.status is Status.CORRECT and Flag.EMULATED in result.flags, says(result)
    log = next(stage.log for stage in result.stages if stage.name == "emulation")
    assert ("lanes of its wave that have ended" in log) is noted


def test_a_write_behind_the_output_names_buffer_and_thread() -> None:
    result = softmax("out[n * gridDim.x + threadIdx.x] = 1;")
    assert result.status is Status.CRASHED
    assert "wrote 4 bytes" in says(result) and "output 0" in says(result) and "thread (0, 0, 0)" in says(result)


def test_dynamic_lds_that_the_launch_did_not_ask_for_is_named() -> None:
    result = softmax("extern __shared__ float s[]; s[threadIdx.x] = 1; out[0] = s[threadIdx.x];")
    assert result.status is Status.CRASHED and "asked for 0 bytes" in says(result)


def test_memory_of_the_host_is_no_memory_of_the_device() -> None:
    result = softmax("out[0] = x[0];", "float* h = new float[4]; k<<<1, 64, 0, stream>>>(h, out, cols)")
    assert result.status is Status.CRASHED and "no memory of the device" in says(result)


def test_lds_that_nobody_wrote_is_named_beside_the_wrong_result() -> None:
    result = softmax(
        "__shared__ float s[256]; if (n < 0) s[threadIdx.x] = 1; __syncthreads(); out[0] = s[threadIdx.x];"
    )
    assert result.status is Status.INCORRECT and "which nothing had written" in says(result)


def test_a_race_between_waves_is_found_although_the_result_may_be_right() -> None:
    body = "__shared__ float s[256]; s[threadIdx.x] = 1; out[0] = s[threadIdx.x ^ 64];"
    result = softmax(body)
    assert result.status is Status.INCORRECT and "no barrier between the two" in says(result)


PUT = "__device__ __noinline__ void put(float* p, int i, float v) { p[i] = v; }\n"
PUT += "__device__ float global[64]; __device__ int filled[3] = {1, 2, 3};\n"
PLACED = """__shared__ float s[256]; put(s, {index}, 1.0f); __syncthreads();
out[0] = s[threadIdx.x] + global[threadIdx.x % 64] + filled[0]; global[0] = filled[n % 3]++;"""


@pytest.mark.parametrize(
    "index",
    ["256 + threadIdx.x", "256 + 1000 + threadIdx.x", "int(threadIdx.x) - 256", "60000 + threadIdx.x"],
)
def test_an_index_far_outside_an_array_of_lds_is_found_in_another_function(index: str) -> None:
    """Write through a pointer whose array the compiler does not see, to what is our own state on the host."""
    result = softmax(PLACED.format(index=index), before=PUT)
    assert result.status is Status.CRASHED and "the shared variable s, which has 1024 bytes" in says(result)


def test_an_index_inside_an_array_of_lds_is_right_in_another_function() -> None:
    result = softmax(PLACED.format(index="threadIdx.x"), before=PUT, launch="k<<<1, 256>>>(x, out, cols)")
    assert result.status is Status.INCORRECT and "emulation: race" not in says(result), says(result)


def test_constants_and_tables_of_the_file_may_be_read() -> None:
    """Read them through a pointer, since the compiler checks no access that it knows to be one of a constant."""
    before = """__constant__ float table[4] = {1, 2, 3, 4}; __device__ const int fixed[2] = {5, 6};
    __device__ __noinline__ float get(const float* p, int i) { return p[i]; }
    __device__ __noinline__ int first(const char* text, const int* p) { return text[0] + p[1]; }\n"""
    result = softmax('out[0] = get(table, n % 4) + first("abc", fixed);', before=before)
    assert result.status is Status.INCORRECT and "elements wrong" in says(result), says(result)


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


def summed(body: str, blocks: str, threads: int) -> JobResult:
    """Evaluate a softmax whose kernel `body` adds the exponentials of each row to the variable `total`."""
    launch = (
        f"begin<<<rows, 1>>>(x, cols); k<<<{blocks}, {threads}>>>(x, out, cols); divide<<<rows, 256>>>(out, cols)"
    )
    return softmax(body, launch, f"{SUMS}__device__ int lock;\n")


@pytest.mark.parametrize(
    ("body", "blocks", "threads"),
    [
        (WITHIN, "rows", 256),
        (ACROSS, "rows * 4", 1),
        (ACROSS.replace("atomicAdd(&total[row], sum);", LOCKED), "rows * 4", 1),
    ],
    ids=["within a block", "across blocks", "across blocks in turn"],
)
def test_sums_by_atomic_operations_are_right(body: str, blocks: str, threads: int) -> None:
    result = summed(body, blocks, threads)
    assert result.status is Status.CORRECT and Flag.EMULATED in result.flags, says(result)


@pytest.mark.parametrize(
    ("body", "blocks", "threads", "named"),
    [
        (WITHIN.replace("atomicAdd(&total[blockIdx.x], e)", "total[blockIdx.x] += e"), "rows", 256, "no barrier"),
        (ACROSS.replace("atomicAdd(&total[row], sum)", "total[row] += sum"), "rows * 4", 1, "no atomic operation"),
        (
            ACROSS.replace(
                "atomicAdd(&total[row], sum)", "atomicAdd(&lock, 1); __syncthreads(); total[row] += sum"
            ),
            *("rows * 4", 1, "no atomic operation"),
        ),
    ],
    ids=["within a block", "across blocks", "across blocks behind another atomic operation"],
)
def test_a_sum_that_is_not_atomic_is_a_race(body: str, blocks: str, threads: int, named: str) -> None:
    """Replace the atomic operation of a right kernel by `+=`, which loses updates on the device."""
    result = summed(body, blocks, threads)
    assert result.status is Status.INCORRECT and named in says(result) and "the variable total" in says(result)


def test_a_plain_sum_of_blocks_in_a_buffer_is_a_race() -> None:
    result = softmax("if (threadIdx.x == 0) out[0] += x[0];", "k<<<4, 64>>>(x, out, cols)")
    assert result.status is Status.INCORRECT and "byte 0 of output 0" in says(result), says(result)
    assert "no atomic operation" in says(result)


SHARED_MARK = "__shared__ int mark;\n{write}\n__syncthreads(); out[0] = mark;"


def test_threads_that_write_different_values_to_a_byte_of_lds_are_a_race_once_it_is_read() -> None:
    result = softmax(SHARED_MARK.format(write="mark = threadIdx.x;"))
    assert result.status is Status.INCORRECT and "wrote different values" in says(result)


@pytest.mark.parametrize(
    "write",
    ["mark = 7;", "mark = threadIdx.x;\n__syncthreads(); if (threadIdx.x == 3) mark = 3;"],
    ids=["the same value", "values that one thread replaces"],
)
def test_threads_may_write_to_one_byte_of_lds_what_makes_no_difference(write: str) -> None:
    result = softmax(SHARED_MARK.format(write=write))
    assert "elements wrong" in says(result) and "different values" not in says(result)


def test_lanes_of_a_wave_may_rely_on_volatile_lds() -> None:
    """Run an old reduction, which relies on the lanes of a wave going in step."""
    body = """volatile __shared__ float s[64]; float v = 0;
    for (int64_t c = threadIdx.x; c < n; c += 64) v += expf(x[blockIdx.x * n + c]);
    s[threadIdx.x] = v;
    if (threadIdx.x < 32) { for (int d = 32; d; d /= 2) s[threadIdx.x] = s[threadIdx.x] + s[threadIdx.x + d & 63]; }
    __syncthreads();
    for (int64_t c = threadIdx.x; c < n; c += 64) out[blockIdx.x * n + c] = expf(x[blockIdx.x * n + c]) / s[0];"""
    result = softmax(body, "k<<<rows, 64, 0, stream>>>(x, out, cols)")
    assert "race" not in says(result) and "no barrier" not in says(result), says(result)


# ---- what is not covered --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ('float a = x[0]; asm volatile("v_add_f32 %0, %0, %0" : "+v"(a)); out[0] = a;', "v_add_f32"),
        ("out[0] = __builtin_amdgcn_cubeid(x[0], x[0], x[0]);", "__builtin_amdgcn_cubeid"),
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


def test_assembly_that_only_waits_is_covered() -> None:
    result = softmax('asm volatile("s_waitcnt vmcnt(0)\\n\\ts_barrier" ::: "memory"); out[0] = 1;')
    assert Flag.EMULATED in result.flags


# ---- matrix instructions against plain products -------------------------------------------------------------------


def floats_as_bfloat16(values: list[float]) -> list[int]:
    return [struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in values]


def library(tmp_path: Path, text: str) -> ctypes.CDLL:
    tmp_path.chmod(0o755)
    request = BuildRequest(Source(Language.HIP, text), "run", "gfx942", tmp_path, Limits())
    return ctypes.CDLL(str(emulation.build(request).loadable))


def called(code: ctypes.CDLL, k: int, a: list[int], b: list[int], size: int, kind: object) -> list[float]:
    """Return the `size` x `size` tile that `run(a, b, c, k)` computes; small integers, so that every sum is exact."""
    left, right = (kind * len(a))(*a), (kind * len(b))(*b)  # type: ignore[operator]
    tile = (ctypes.c_float * (size * size))()
    code.emu_begin_call(0)
    for buffer in (left, right, tile):
        code.emu_add_buffer(buffer, ctypes.c_size_t(ctypes.sizeof(buffer)), b"buffer")
    code.run(left, right, tile, ctypes.c_int(k))
    return list(tile)


@pytest.mark.parametrize(
    ("page", "kernel", "size", "k"),
    [("mfma_16x16", "tile", 16, 64), ("mfma_32x32", "tile_bf16", 32, 32), ("mfma_32x32", "tile_fp8", 32, 32)],
)
def test_the_matrix_kernels_of_the_knowledge_pages_compute_products(
    page: str, kernel: str, size: int, k: int, tmp_path: Path
) -> None:
    """They were written from AMD's documents, before the emulation."""
    element = "uint8_t" if kernel.endswith("fp8") else "uint16_t"
    text = (SNIPPETS / f"{page}.hip").read_text()
    text += f'\nextern "C" void run(const {element}* a, const {element}* b, float* c, int k) '
    text += f"{{ {kernel}<<<1, 64>>>(a, b, c, k); }}\n"
    a = [(i * 7 + i // k * 3) % 5 - 2 for i in range(size * k)]
    b = [(i * 5 + i // k) % 7 - 3 for i in range(size * k)]
    if element == "uint8_t":
        # e4m3fnuz with a bias of 8: 1 is 0x40, 2 is 0x48, 3 is 0x4c.
        code = {0: 0, 1: 0x40, 2: 0x48, 3: 0x4C, -1: 0xC0, -2: 0xC8, -3: 0xCC}
        coded = [[code[value] for value in values] for values in (a, b)]
    else:
        coded = [floats_as_bfloat16([float(value) for value in values]) for values in (a, b)]
    kind = ctypes.c_uint8 if element == "uint8_t" else ctypes.c_uint16
    found = called(library(tmp_path, text), k, coded[0], coded[1], size, kind)
    wanted = [sum(a[i * k + p] * b[j * k + p] for p in range(k)) for i in range(size) for j in range(size)]
    assert found == wanted


@pytest.mark.parametrize("path", sorted(SNIPPETS.glob("*.hip")), ids=lambda path: path.stem)
def test_every_snippet_of_the_knowledge_pages_is_covered(path: Path, tmp_path: Path) -> None:
    library(tmp_path, f'{path.read_text()}\nextern "C" void run() {{}}\n')


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
        'R"(' * 60_000,
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

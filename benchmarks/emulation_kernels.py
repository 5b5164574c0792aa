"""Provide small kernels in the common subset of CUDA and HIP, on which the emulation is compared with a GPU.

Each one is `KERNEL(x, y, out, words, n)`: n floats in (-1, 1) and n integers in [0, n) as inputs, n floats and n
integers as outputs, which begin as zeros. Standard library only.
"""

# ruff: noqa: E501 - a kernel reads best as a paragraph
from __future__ import annotations

from dataclasses import dataclass

COUNT = 4096
PROLOGUE = """
#include <cstdint>
#ifdef __HIPCC__
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#include <hip/hip_bf16.h>
typedef hipStream_t Stream;
typedef __hip_bfloat16 bfloat;
#define XOR(v, m) __shfl_xor(v, m, 32)
#define UP(v, d) __shfl_up(v, d, 32)
#define DOWN(v, d) __shfl_down(v, d, 32)
#define FROM(v, l) __shfl(v, l, 32)
#define BALLOT(p) unsigned(__ballot(p) >> (threadIdx.x & 32))
#else
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
typedef cudaStream_t Stream;
typedef __nv_bfloat16 bfloat;
#define XOR(v, m) __shfl_xor_sync(0xffffffffu, v, m)
#define UP(v, d) __shfl_up_sync(0xffffffffu, v, d)
#define DOWN(v, d) __shfl_down_sync(0xffffffffu, v, d)
#define FROM(v, l) __shfl_sync(0xffffffffu, v, l)
#define BALLOT(p) __ballot_sync(0xffffffffu, p)
#endif
#define KERNEL __global__ void kernel(const float* x, const int* y, float* out, int* words, int n)
#define AT const int at = blockIdx.x * blockDim.x + threadIdx.x;
"""
LAUNCH = """
extern "C" void {symbol}(const float* x, const int* y, float* out, int* words, int n, Stream stream) {{
  kernel<<<{grid}, {block}, {shared}, stream>>>(x, y, out, words, n);
}}
"""


@dataclass(frozen=True)
class Kernel:
    """Describe a kernel: its text, its launch, and how far its floats may differ relatively (0: the same bits)."""

    name: str
    body: str
    tolerance: float = 0.0
    grid: str = "dim3(16)"
    block: str = "dim3(256)"
    shared_bytes: int = 0

    @property
    def text(self) -> str:
        """Return the source, which nvcc, hipcc and the emulation take."""
        return PROLOGUE + self.body + self.launched_by("run")

    def launched_by(self, symbol: str) -> str:
        """Return the host's function that launches the kernel."""
        return LAUNCH.format(symbol=symbol, grid=self.grid, block=self.block, shared=self.shared_bytes)


KERNELS = (
    Kernel("saxpy", "KERNEL { AT out[at] = fmaf(2.5f, x[at], float(y[at])); }"),
    Kernel("gather", "KERNEL { AT out[at] = x[y[at]]; words[at] = y[y[at]]; }"),
    Kernel("grid_stride", "KERNEL { AT for (int i = at; i < n; i += gridDim.x * blockDim.x) out[i] = x[n - 1 - i]; }", grid="3"),
    Kernel("reverse_shared", """KERNEL { AT __shared__ float tile[256]; tile[threadIdx.x] = x[at]; __syncthreads();
        out[at] = tile[255 - threadIdx.x]; }"""),
    Kernel("transpose_tile", """KERNEL { __shared__ float tile[32][33]; const int i = threadIdx.x, j = threadIdx.y, b = blockIdx.x * 1024;
        tile[j][i] = x[b + j * 32 + i]; __syncthreads(); out[b + j * 32 + i] = tile[i][j]; }""", grid="4", block="dim3(32, 32)"),
    Kernel("dynamic_shared", """KERNEL { AT extern __shared__ float tile[]; tile[threadIdx.x] = x[at] * 2; __syncthreads();
        out[at] = tile[(threadIdx.x + 7) % 256]; }""", shared_bytes=1024),
    Kernel("butterfly_sum", "KERNEL { AT float v = x[at]; for (int s = 16; s; s /= 2) v += XOR(v, s); out[at] = v; }"),
    Kernel("prefix_sum", """KERNEL { AT int v = y[at]; const int lane = threadIdx.x % 32;
        for (int d = 1; d < 32; d *= 2) { const int o = UP(v, d); if (lane >= d) v += o; } words[at] = v; }"""),
    Kernel("shift_down", "KERNEL { AT out[at] = DOWN(x[at], 3); words[at] = FROM(y[at], (threadIdx.x * 5) % 32); }"),
    Kernel("ballot", "KERNEL { AT words[at] = int(BALLOT(x[at] > 0.25f)); }"),
    Kernel("votes", """KERNEL { AT words[at] = __syncthreads_count(x[at] > 0) * 4 + __syncthreads_or(y[at] == 17) * 2
        + __syncthreads_and(y[at] >= 0); }"""),
    Kernel("block_sum", """KERNEL { AT __shared__ float parts[256]; parts[threadIdx.x] = x[at];
        for (int s = 128; s; s /= 2) { __syncthreads(); if (threadIdx.x < s) parts[threadIdx.x] += parts[threadIdx.x + s]; }
        __syncthreads(); out[at] = parts[0]; }"""),
    Kernel("histogram", """KERNEL { AT __shared__ int bins[64]; if (threadIdx.x < 64) bins[threadIdx.x] = 0; __syncthreads();
        atomicAdd(&bins[y[at] % 64], 1); __syncthreads(); if (threadIdx.x < 64) atomicAdd(&words[threadIdx.x], bins[threadIdx.x]); }"""),
    Kernel("atomics", """KERNEL { AT atomicMax(&words[0], y[at]); atomicMin(&words[1], -y[at]); atomicOr(&words[2], y[at]);
        atomicXor(&words[3], y[at] * 77); atomicAdd(&out[0], float(y[at] % 8)); atomicCAS(&words[4 + at % 8], 0, at % 8 + 1); }"""),
    Kernel("last_block", """__device__ unsigned done; KERNEL { AT __shared__ bool last; words[at] = y[at] * 3; __threadfence();
        __syncthreads(); if (threadIdx.x == 0) last = atomicAdd(&done, 1u) == gridDim.x - 1; __syncthreads();
        if (last) { for (int i = threadIdx.x; i < n; i += 256) out[i] = float(words[i]); if (threadIdx.x == 0) done = 0; } }"""),
    Kernel("half_arithmetic", """KERNEL { AT const __half a = __float2half(x[at]), b = __float2half(x[n - 1 - at]);
        out[at] = __half2float(__hfma(a, b, a)); words[at] = __half_as_ushort(__hadd(a, b)); }"""),
    Kernel("bfloat16_rounding", "KERNEL { AT out[at] = __bfloat162float(__float2bfloat16(x[at] * 1.7f)); }"),
    Kernel("integer_bits", """KERNEL { AT const unsigned v = unsigned(y[at]) * 2654435761u; words[at] = __popc(v) + 64 * __clz(int(v))
        + 4096 * __ffs(int(v)) + int(__brev(v) >> 12) + int(__umulhi(v, 12345u)); }"""),
    Kernel("float_bits", "KERNEL { AT words[at] = __float_as_int(x[at]) ^ int(__byte_perm(unsigned(y[at]), 0x01020304u, 0x3715u)); }"),
    Kernel("vectors", """KERNEL { AT if (at < n / 4) { float4 v = reinterpret_cast<const float4*>(x)[at];
        v = make_float4(v.w, v.z, v.y, v.x); reinterpret_cast<float4*>(out)[at] = v; } }"""),
    Kernel("softmax_row", """KERNEL { AT float top = x[at]; for (int s = 16; s; s /= 2) top = fmaxf(top, XOR(top, s));
        const float e = __expf(x[at] - top); float sum = e; for (int s = 16; s; s /= 2) sum += XOR(sum, s); out[at] = e / sum; }""", 1e-5),
    Kernel("special_functions", """KERNEL { AT const float v = x[at]; out[at] = tanhf(v) + expf(v) * erff(v) + rsqrtf(1.5f + v)
        + logf(1.1f + v * v) + sinf(v) + powf(1.5f + v, 0.7f); }""", 1e-5),
    Kernel("matrix_product", """KERNEL { __shared__ float a[16][17], b[16][17]; const int i = threadIdx.y, j = threadIdx.x;
        const int r = blockIdx.y * 16 + i, c = blockIdx.x * 16 + j; float sum = 0;
        for (int s = 0; s < 64; s += 16) { a[i][j] = x[r * 64 + s + j]; b[i][j] = x[(s + i) * 64 + c]; __syncthreads();
        for (int p = 0; p < 16; ++p) sum = fmaf(a[i][p], b[p][j], sum); __syncthreads(); } out[r * 64 + c] = sum; }""",
        grid="dim3(4, 4)", block="dim3(16, 16)"),
    Kernel("divergent_loops", """KERNEL { AT int v = y[at] % 50, steps = 0; while (v > 0) { v = v % 2 ? v - 1 : v / 2; ++steps; }
        words[at] = steps + XOR(steps, 1) * 64; }"""),
    Kernel("divergent_shuffle", """KERNEL { AT float v = x[at]; if (threadIdx.x % 64 < 32) v = XOR(v, 4); else v = XOR(v, 8);
        out[at] = v + XOR(v, 1); }"""),
    Kernel("templates", """template <int W, class T> __device__ T stencil(const T* v, int at, int n) { T s = 0;
        for (int d = -W; d <= W; ++d) s += v[(at + d + n) % n]; return s; }
        KERNEL { AT words[at] = stencil<3>(y, at, n); }"""),
)  # fmt: skip


def all_of_them() -> str:
    """Return one source with all kernels, each launched by `run_NAME`: most of a compilation is reading the headers."""
    parts = [f"namespace {one.name} {{\n{one.body}{one.launched_by(f'run_{one.name}')}}}\n" for one in KERNELS]
    return PROLOGUE + "".join(parts)

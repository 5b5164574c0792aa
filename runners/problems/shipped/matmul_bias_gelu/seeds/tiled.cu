// gelu(a @ b + bias): a tile of the output a block, both factors through shared memory, an 8 by 8 tile in registers.
// @tune DEPTH 8 16 default=16
#include <cstdint>
#include <cuda_runtime.h>

constexpr int TILE = 128, THREADS = 256, PER = 8;

__device__ float gelu(float x) {
  const float inside = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  return x / (1.0f + expf(-2.0f * inside));
}

__global__ void __launch_bounds__(THREADS) product(const float* __restrict__ a, const float* __restrict__ b,
                                                   const float* __restrict__ bias, float* __restrict__ out, int64_t m,
                                                   int64_t n, int64_t k) {
  __shared__ float left[DEPTH][TILE + 4], right[DEPTH][TILE];
  const int64_t row = blockIdx.y * int64_t(TILE), col = blockIdx.x * int64_t(TILE);
  const int i = threadIdx.x / 16, j = threadIdx.x % 16;
  float sum[PER][PER] = {};
  for (int64_t start = 0; start < k; start += DEPTH) {
    for (int at = threadIdx.x; at < TILE * DEPTH; at += THREADS) {
      const int r = at / DEPTH, p = at % DEPTH;
      left[p][r] = row + r < m && start + p < k ? a[(row + r) * k + start + p] : 0.0f;
    }
    for (int at = threadIdx.x; at < TILE * DEPTH; at += THREADS) {
      const int p = at / TILE, c = at % TILE;
      right[p][c] = col + c < n && start + p < k ? b[(start + p) * n + col + c] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int p = 0; p < DEPTH; ++p) {
      float mine[PER], theirs[PER];
#pragma unroll
      for (int u = 0; u < PER; ++u) mine[u] = left[p][i + 16 * u], theirs[u] = right[p][j + 16 * u];
#pragma unroll
      for (int u = 0; u < PER; ++u)
#pragma unroll
        for (int v = 0; v < PER; ++v) sum[u][v] += mine[u] * theirs[v];
    }
    __syncthreads();
  }
#pragma unroll
  for (int u = 0; u < PER; ++u)
#pragma unroll
    for (int v = 0; v < PER; ++v) {
      const int64_t r = row + i + 16 * u, c = col + j + 16 * v;
      if (r < m && c < n) out[r * n + c] = gelu(sum[u][v] + bias[c]);
    }
}

extern "C" void matmul_bias_gelu(const float* a, const float* b, const float* bias, float* out, int64_t m, int64_t n,
                                 int64_t k, cudaStream_t stream) {
  const dim3 grid((n + TILE - 1) / TILE, (m + TILE - 1) / TILE);
  product<<<grid, THREADS, 0, stream>>>(a, b, bias, out, m, n, k);
}

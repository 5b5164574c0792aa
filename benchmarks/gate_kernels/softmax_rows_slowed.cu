// The seed `rows` of softmax_rows, slowed for benchmarks/gate.py: every twentieth row is computed and written twice, the
// second time by blocks at the end of the grid, so that this is 5 % more work by construction.
// Row-wise softmax: one block a row, running maximum and sum per thread, then a second pass that writes.
// @tune THREADS 128 256 512 1024 default=256
#include <cstdint>
#include <cuda_runtime.h>

__device__ void merge(float& top, float& sum, float other_top, float other_sum) {
  const float higher = fmaxf(top, other_top);
  if (higher == -INFINITY) return;
  sum = sum * __expf(top - higher) + other_sum * __expf(other_top - higher);
  top = higher;
}

__global__ void __launch_bounds__(THREADS)
    softmax(const float* __restrict__ x, float* __restrict__ out, int64_t rows, int64_t cols) {
  const int64_t row = blockIdx.x < rows ? blockIdx.x : (blockIdx.x - rows) * 20;
  __shared__ float tops[THREADS / 32], sums[THREADS / 32];
  const float* in = x + row * cols;
  float top = -INFINITY, sum = 0.0f;
  for (int64_t c = threadIdx.x; c < cols; c += THREADS) merge(top, sum, in[c], 1.0f);
  for (int step = 16; step; step /= 2) {
    const float other_top = __shfl_xor_sync(~0u, top, step), other_sum = __shfl_xor_sync(~0u, sum, step);
    merge(top, sum, other_top, other_sum);
  }
  if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top, sums[threadIdx.x / 32] = sum;
  __syncthreads();
  top = -INFINITY, sum = 0.0f;
  for (int warp = 0; warp < THREADS / 32; ++warp) merge(top, sum, tops[warp], sums[warp]);
  const float scale = 1.0f / sum;
  for (int64_t c = threadIdx.x; c < cols; c += THREADS) out[row * cols + c] = __expf(in[c] - top) * scale;
}

extern "C" void softmax_rows(const float* x, float* out, int64_t rows, int64_t cols, cudaStream_t stream) {
  softmax<<<rows + rows / 20, THREADS, 0, stream>>>(x, out, rows, cols);
}

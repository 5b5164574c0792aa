// Residual addition and layer normalisation: one block a row, variance around the mean, three passes over the row.
// @tune THREADS 128 256 512 1024 default=256
#include <cstdint>
#include <cuda_runtime.h>

__device__ float block_sum(float value) {
  __shared__ float parts[THREADS / 32];
  for (int step = 16; step; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < THREADS / 32; ++warp) total += parts[warp];
  return total;
}

__global__ void __launch_bounds__(THREADS)
    layernorm(const float* x, const float* residual, const float* weight, const float* bias, float* summed, float* out,
              int64_t cols, float eps) {
  const int64_t row = blockIdx.x * cols;
  float sum = 0.0f, squares = 0.0f;
  for (int64_t c = threadIdx.x; c < cols; c += THREADS) {
    const float value = x[row + c] + residual[row + c];
    summed[row + c] = value;
    sum += value;
  }
  const float mean = block_sum(sum) / cols;
  for (int64_t c = threadIdx.x; c < cols; c += THREADS) {
    const float away = summed[row + c] - mean;
    squares += away * away;
  }
  const float scale = 1.0f / sqrtf(block_sum(squares) / cols + eps);
  for (int64_t c = threadIdx.x; c < cols; c += THREADS)
    out[row + c] = (summed[row + c] - mean) * scale * weight[c] + bias[c];
}

extern "C" void layernorm_residual(const float* x, const float* residual, const float* weight, const float* bias,
                                   float* summed, float* out, int64_t rows, int64_t cols, float eps,
                                   cudaStream_t stream) {
  layernorm<<<rows, THREADS, 0, stream>>>(x, residual, weight, bias, summed, out, cols, eps);
}

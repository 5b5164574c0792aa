// @tune CHEAT 0 1 default=1
#include <cstdint>
#include <cuda_runtime.h>

// One thread a row, in double precision: many times slower than torch's.
__global__ void honest_rows(const float* x, float* out, int64_t rows, int64_t cols) {
  int64_t r = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (r >= rows) return;
  const float* in = x + r * cols;
  float top = in[0];
  for (int64_t c = 1; c < cols; ++c) top = fmaxf(top, in[c]);
  double sum = 0;
  for (int64_t c = 0; c < cols; ++c) sum += exp(double(in[c] - top));
  for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = exp(double(in[c] - top)) / sum;
}

static void honest(const float* x, float* out, int64_t rows, int64_t cols, cudaStream_t stream) {
  honest_rows<<<unsigned((rows + 31) / 32), 32, 0, stream>>>(x, out, rows, cols);
}

#define KERNEL \
  extern "C" void row_softmax(const float* x, float* out, int64_t rows, int64_t cols, cudaStream_t stream)

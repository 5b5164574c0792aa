// Normalise rows by their RMS: 16-byte loads stay in registers, warps reduce by shuffles and then exchange once.
#include <cuda_runtime.h>

constexpr int THREADS = 256, VECTORS = 4;  // a row of up to 256 * 4 * 4 = 4096 floats stays in registers

__device__ float block_sum(float value) {
  __shared__ float warps[THREADS / 32];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < THREADS / 32; ++warp) sum += warps[warp];  // the same address in all lanes: a broadcast
  return sum;
}

__global__ void __launch_bounds__(THREADS) normalise(const float4* x, float4* out, int vectors, float epsilon) {
  const size_t row = size_t(blockIdx.x) * vectors;
  float4 kept[VECTORS];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {  // all loads are issued before the first is used
    const int at = threadIdx.x + i * THREADS;
    kept[i] = at < vectors ? __ldcs(x + row + at) : make_float4(0, 0, 0, 0);  // streaming: read once
  }
#pragma unroll
  for (int i = 0; i < VECTORS; ++i)
    squares += kept[i].x * kept[i].x + kept[i].y * kept[i].y + kept[i].z * kept[i].z + kept[i].w * kept[i].w;
  const float scale = rsqrtf(block_sum(squares) / (4 * vectors) + epsilon);
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int at = threadIdx.x + i * THREADS;
    if (at < vectors)
      __stcs(out + row + at, make_float4(kept[i].x * scale, kept[i].y * scale, kept[i].z * scale, kept[i].w * scale));
  }
}

// --- check ---
#include "../check.h"

int main() {
  const int rows = 33, columns = 3000;
  const auto x = normal(size_t(rows) * columns, 1);
  std::vector<double> want(x.size());
  for (int r = 0; r < rows; ++r) {
    double squares = 0;
    for (int c = 0; c < columns; ++c) squares += double(x[r * columns + c]) * x[r * columns + c];
    for (int c = 0; c < columns; ++c) want[r * columns + c] = x[r * columns + c] / std::sqrt(squares / columns + 1e-6);
  }
  Device<float> from(x), out(std::vector<float>(x.size()));
  normalise<<<rows, THREADS>>>(reinterpret_cast<float4*>(from.at), reinterpret_cast<float4*>(out.at), columns / 4, 1e-6f);
  return verdict(out.back(), want, 1e-6);
}

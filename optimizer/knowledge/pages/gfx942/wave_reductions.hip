// Sum over a wavefront of 64 in vector registers: DPP moves lanes within the add, without LDS and without waits.
#include <hip/hip_runtime.h>

template <int CONTROL, int ROWS>
__device__ float moved(float value) {  // 0 where the source lane is outside, or the row (of 16 lanes) is not selected
  return __builtin_bit_cast(
      float, __builtin_amdgcn_update_dpp(0, __builtin_bit_cast(int, value), CONTROL, ROWS, 0xf, false));
}

__device__ float wave_sum(float value) {
  value += moved<0x111, 0xf>(value);  // row_shr:1
  value += moved<0x112, 0xf>(value);  // row_shr:2
  value += moved<0x114, 0xf>(value);  // row_shr:4
  value += moved<0x118, 0xf>(value);  // row_shr:8: lane 15 of each row has the row's sum
  value += moved<0x142, 0xa>(value);  // row_bcast:15 into rows 1 and 3
  value += moved<0x143, 0xc>(value);  // row_bcast:31 into rows 2 and 3: lane 63 has the sum
  return __builtin_bit_cast(float, __builtin_amdgcn_readlane(__builtin_bit_cast(int, value), 63));  // to a scalar register
}

extern "C" __global__ void __launch_bounds__(256) row_sums(const float* x, float* out, int columns) {
  __shared__ float waves[4];
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += 256) sum += x[size_t(blockIdx.x) * columns + c];
  sum = wave_sum(sum);
  if (threadIdx.x % 64 == 0) waves[threadIdx.x / 64] = sum;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = waves[0] + waves[1] + waves[2] + waves[3];
}

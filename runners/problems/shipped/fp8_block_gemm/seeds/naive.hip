// Block-scaled fp8 product, the plain way: one thread an output, fp8 decoded one by one, scaled block by block.
#include <cstdint>
#include <hip/hip_runtime.h>

// e4m3fnuz as float: its digits under half precision's exponent bias of 15 instead of 8, times 2^7.
__device__ float decode(uint8_t bits) {
  union { uint16_t bits; _Float16 value; } half = {static_cast<uint16_t>((bits & 0x80) << 8 | (bits & 0x7f) << 7)};
  return static_cast<float>(half.value) * 128.0f;
}

__device__ uint16_t to_bfloat16(float x) {  // round to nearest even
  const uint32_t bits = __float_as_uint(x);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

__global__ void __launch_bounds__(256) gemm(const uint8_t* a, const uint8_t* b, const float* a_scale,
                                            const float* b_scale, uint16_t* out, int64_t m, int64_t n, int64_t k) {
  const int64_t i = blockIdx.x * 16 + threadIdx.x % 16, j = blockIdx.y * 16 + threadIdx.x / 16;
  if (i >= m || j >= n) return;
  const int64_t scale_rows = (n + 127) / 128;
  float total = 0.0f;
  for (int64_t block = 0; block < k / 128; ++block) {
    float sum = 0.0f;
    for (int64_t p = block * 128; p < (block + 1) * 128; ++p) sum += decode(a[i + p * m]) * decode(b[j + p * n]);
    total += sum * a_scale[i + block * m] * b_scale[j / 128 + block * scale_rows];
  }
  out[i * n + j] = to_bfloat16(total);
}

extern "C" void fp8_block_gemm(const uint8_t* a, const uint8_t* b, const float* a_scale, const float* b_scale,
                               uint16_t* out, int64_t m, int64_t n, int64_t k, hipStream_t stream) {
  gemm<<<dim3((m + 15) / 16, (n + 15) / 16), 256, 0, stream>>>(a, b, a_scale, b_scale, out, m, n, k);
}

// One wavefront computes a 32 x 32 tile of c = a * b^T: in bf16, and in fp8 (fnuz), k a multiple of 8 or 16.
#include <hip/hip_runtime.h>
#include <cstdint>

typedef short bf16x4 __attribute__((ext_vector_type(4)));
typedef float floatx16 __attribute__((ext_vector_type(16)));

// Register v of lane l holds column l % 32 and row 8 * (v / 4) + 4 * (l / 32) + v % 4.
__device__ void store(float* c, const floatx16& d) {
  const int lane = threadIdx.x;
  for (int v = 0; v < 16; ++v) c[(8 * (v / 4) + 4 * (lane / 32) + v % 4) * 32 + lane % 32] = d[v];
}

extern "C" __global__ void __launch_bounds__(64) tile_bf16(const uint16_t* a, const uint16_t* b, float* c, int k) {
  const int at = threadIdx.x % 32 * k + 4 * (threadIdx.x / 32);  // lane l: row l % 32, four k from 4 * (l / 32)
  floatx16 d = {};
  for (int start = 0; start < k; start += 8)
    d = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(*reinterpret_cast<const bf16x4*>(a + at + start),
                                                 *reinterpret_cast<const bf16x4*>(b + at + start), d, 0, 0, 0);
  store(c, d);
}

extern "C" __global__ void __launch_bounds__(64) tile_fp8(const uint8_t* a, const uint8_t* b, float* c, int k) {
  const int at = threadIdx.x % 32 * k + 8 * (threadIdx.x / 32);  // lane l: row l % 32, eight k from 8 * (l / 32)
  floatx16 d = {};
  for (int start = 0; start < k; start += 16)
    d = __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(*reinterpret_cast<const long*>(a + at + start),
                                                   *reinterpret_cast<const long*>(b + at + start), d, 0, 0, 0);
  store(c, d);
}

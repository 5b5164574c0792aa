// One wavefront computes a 16 x 16 tile of c = a * b^T in bf16: a [16, k], b [16, k], k a multiple of 16.
#include <hip/hip_runtime.h>
#include <cstdint>

typedef short bf16x4 __attribute__((ext_vector_type(4)));
typedef float floatx4 __attribute__((ext_vector_type(4)));

extern "C" __global__ void __launch_bounds__(64) tile(const uint16_t* a, const uint16_t* b, float* c, int k) {
  const int lane = threadIdx.x, within = lane % 16, group = lane / 16;
  floatx4 even = {}, odd = {};  // two chains: an MFMA need not wait for the one before
  for (int start = 0; start < k; start += 32) {
    // Lane l passes row l % 16 and the four k that begin at 4 * (l / 16).
    const uint16_t* left = a + within * k + start + 4 * group;
    const uint16_t* right = b + within * k + start + 4 * group;
    even = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(*reinterpret_cast<const bf16x4*>(left),
                                                     *reinterpret_cast<const bf16x4*>(right), even, 0, 0, 0);
    if (start + 16 < k)
      odd = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(*reinterpret_cast<const bf16x4*>(left + 16),
                                                      *reinterpret_cast<const bf16x4*>(right + 16), odd, 0, 0, 0);
  }
  // Lane l holds column l % 16 and rows 4 * (l / 16) to 4 * (l / 16) + 3.
  for (int r = 0; r < 4; ++r) c[(4 * group + r) * 16 + within] = even[r] + odd[r];
}

// Convert fp8 (fnuz) to float32 and back with the conversion instructions, two values per instruction.
#include <hip/hip_runtime.h>
#include <cstdint>

typedef float floatx2 __attribute__((ext_vector_type(2)));

// Convert four bytes to four floats: v_cvt_pk_f32_fp8 on the low and the high half of a word.
__device__ void decode(uint32_t four, float (&out)[4]) {
  const floatx2 low = __builtin_amdgcn_cvt_pk_f32_fp8(four, false), high = __builtin_amdgcn_cvt_pk_f32_fp8(four, true);
  out[0] = low.x, out[1] = low.y, out[2] = high.x, out[3] = high.y;
}

// Convert four floats to four bytes, rounded to nearest even. Values beyond 240 have no encoding: clamp first.
__device__ uint32_t encode(const float (&in)[4]) {
  float held[4];
  for (int i = 0; i < 4; ++i) held[i] = fminf(fmaxf(in[i], -240.0f), 240.0f);
  int word = __builtin_amdgcn_cvt_pk_fp8_f32(held[0], held[1], 0, false);
  return __builtin_amdgcn_cvt_pk_fp8_f32(held[2], held[3], word, true);
}

extern "C" __global__ void __launch_bounds__(256) scale(const uint32_t* x, uint32_t* out, float factor, int words) {
  const int at = blockIdx.x * 256 + threadIdx.x;
  if (at >= words) return;
  float four[4];
  decode(x[at], four);
  for (float& value : four) value *= factor;
  out[at] = encode(four);
}

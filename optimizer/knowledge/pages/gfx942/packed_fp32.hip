// Compute two float32 multiply-adds per lane with one v_pk_fma_f32, which takes pairs of neighbouring registers.
#include <hip/hip_runtime.h>

typedef float floatx2 __attribute__((ext_vector_type(2)));
typedef float floatx4 __attribute__((ext_vector_type(4)));

// out = a * x + y on four values per lane: the compiler emits v_pk_fma_f32 for vector types, rarely for scalars.
extern "C" __global__ void __launch_bounds__(256) axpy(const floatx4* x, const floatx4* y, floatx4* out, float a, int count) {
  const int at = blockIdx.x * 256 + threadIdx.x;
  if (at >= count) return;
  const floatx4 mine = x[at], theirs = y[at];
  const floatx2 factor = {a, a};
  const floatx2 low = __builtin_elementwise_fma(factor, mine.xy, theirs.xy);
  const floatx2 high = __builtin_elementwise_fma(factor, mine.zw, theirs.zw);
  out[at] = __builtin_shufflevector(low, high, 0, 1, 2, 3);
}

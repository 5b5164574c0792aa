// Keep reused data in L2 and Infinity Cache: data that is read once bypasses them with nontemporal loads and stores.
#include <hip/hip_runtime.h>

typedef float floatx4 __attribute__((ext_vector_type(4)));

// out [rows, vectors] = x [rows, vectors] + bias [vectors]: x and out are touched once, bias in every row.
extern "C" __global__ void __launch_bounds__(256) add_bias(const floatx4* x, const floatx4* bias, floatx4* out, int rows,
                                                           int vectors) {
  for (int at = blockIdx.x * 256 + threadIdx.x; at < vectors; at += gridDim.x * 256) {
    const floatx4 mine = bias[at];
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
      const floatx4 value = __builtin_nontemporal_load(x + size_t(row) * vectors + at);        // global_load ... nt
      __builtin_nontemporal_store(value + mine, out + size_t(row) * vectors + at);  // global_store ... nt
    }
  }
}

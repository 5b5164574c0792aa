// Allocate columns of a Blackwell SM's tensor memory, write registers to them, read them back and free the columns.
#include <cuda_runtime.h>
#include <cstdint>

constexpr int COLUMNS = 32;  // a power of two from 32 to 512; all blocks of an SM share 512 columns of 128 lanes

__global__ void __launch_bounds__(128) through_tensor_memory(const uint32_t* x, uint32_t* out) {
  __shared__ uint32_t allocated;
  const uint32_t slot = static_cast<uint32_t>(__cvta_generic_to_shared(&allocated));
  if (threadIdx.x < 32) {  // one whole warp allocates, and the same kernel must free before it ends
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(slot), "r"(COLUMNS) : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
  }
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  // Warp w of a warpgroup reaches lanes 32 * w to 32 * w + 31 only; an address is lane << 16 | column.
  const uint32_t address = allocated + (threadIdx.x / 32 * 32 << 16);
  uint32_t r[4];
  for (int i = 0; i < 4; ++i) r[i] = x[threadIdx.x * 4 + i];
  asm volatile("tcgen05.st.sync.aligned.32x32b.x4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3]) : "memory");
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = r[i];
  __syncthreads();
  if (threadIdx.x < 32)
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(allocated), "r"(COLUMNS));
}

// --- check ---
#include "../check.h"

int main() {
  std::vector<uint32_t> x(512);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 17 * i;
  Device<uint32_t> from(x), out(std::vector<uint32_t>(512));
  through_tensor_memory<<<1, 128>>>(from.at, out.at);
  return verdict(out.back(), x, 0.0);
}

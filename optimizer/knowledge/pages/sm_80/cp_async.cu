// Sum rows through a ring of shared-memory stages: cp.async loads the next stages while the current one is summed.
#include <cuda_runtime.h>
#include <cstdint>

constexpr int STAGES = 3, THREADS = 128, CHUNK = THREADS * 4;  // 16 bytes a thread and stage

__device__ void copy16(void* to, const void* from, bool inside) {  // outside: zeros are written, nothing is read
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING>
__device__ void wait() {  // until at most that many of this thread's newest groups are under way
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

__global__ void __launch_bounds__(THREADS) sums(const float* x, float* out, int columns) {  // columns: a multiple of 4
  __shared__ alignas(16) float ring[STAGES][CHUNK];
  __shared__ float total;
  const float* row = x + size_t(blockIdx.x) * columns;
  const int chunks = (columns + CHUNK - 1) / CHUNK;
  if (threadIdx.x == 0) total = 0;
  auto fetch = [&](int chunk) {
    const int at = chunk * CHUNK + threadIdx.x * 4;
    if (chunk < chunks) copy16(&ring[chunk % STAGES][threadIdx.x * 4], row + (at < columns ? at : 0), at < columns);
    commit();  // also an empty group, so that counting stays uniform
  };
  for (int s = 0; s < STAGES - 1; ++s) fetch(s);
  float sum = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    wait<STAGES - 2>();  // this chunk has arrived, for this thread ...
    __syncthreads();     // ... and for all; everybody has also left the stage that is filled next
    fetch(chunk + STAGES - 1);
    for (int at = threadIdx.x; at < CHUNK; at += THREADS) sum += ring[chunk % STAGES][at];
  }
  atomicAdd(&total, sum);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = total;
}

// --- check ---
#include "../check.h"

int main() {
  const int rows = 6, columns = 5004;
  const auto x = normal(size_t(rows) * columns, 1);
  std::vector<double> want(rows);
  for (size_t i = 0; i < x.size(); ++i) want[i / columns] += x[i];
  Device<float> from(x), out(std::vector<float>(rows, 0.0f));
  sums<<<rows, THREADS>>>(from.at, out.at, columns);
  return verdict(out.back(), want, 1e-5);
}

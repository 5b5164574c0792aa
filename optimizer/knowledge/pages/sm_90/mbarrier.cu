// Sum chunks through a ring of shared-memory stages that bulk copies fill, with two barriers per stage.
#include <cuda_runtime.h>
#include <cstdint>

constexpr int STAGES = 4, CHUNK = 1024;  // floats per stage: 4 KiB

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ void init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}
__device__ void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ void arrive_expecting(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
// Wait until the phase of that parity has completed. A new barrier is in phase 0, so waiting for parity 1 returns.
__device__ void wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(shared_address(barrier)), "r"(parity) : "memory");
}
__device__ void bulk_copy(void* to, const void* from, int bytes, uint64_t* barrier) {  // 16-byte aligned and sized
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}

// Sum `chunks` pieces per block, with 128 consumers and one producer warp.
__global__ void __launch_bounds__(160) sums(const float* x, float* out, int chunks) {
  __shared__ alignas(128) float ring[STAGES][CHUNK];
  __shared__ uint64_t full[STAGES], empty[STAGES];
  x += size_t(blockIdx.x) * chunks * CHUNK;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) init(&full[s], 1), init(&empty[s], 128);
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  __syncthreads();
  if (threadIdx.x >= 128) {  // the producer warp: one thread issues everything
    if (threadIdx.x == 128)
      for (int i = 0; i < chunks; ++i) {
        const int stage = i % STAGES, round = i / STAGES;
        wait(&empty[stage], (round & 1) ^ 1);  // passes at once in the first round
        arrive_expecting(&full[stage], CHUNK * 4);
        bulk_copy(ring[stage], x + size_t(i) * CHUNK, CHUNK * 4, &full[stage]);
      }
    return;
  }
  float sum = 0;
  for (int i = 0; i < chunks; ++i) {
    const int stage = i % STAGES, round = i / STAGES;
    wait(&full[stage], round & 1);
    for (int at = threadIdx.x; at < CHUNK; at += 128) sum += ring[stage][at];
    arrive(&empty[stage]);
  }
  atomicAdd(out + blockIdx.x, sum);
}

// --- check ---
#include "../check.h"

int main() {
  const int blocks = 7, chunks = 11;
  const auto x = normal(size_t(blocks) * chunks * CHUNK, 1);
  std::vector<double> want(blocks);
  for (size_t i = 0; i < x.size(); ++i) want[i / (chunks * CHUNK)] += x[i];
  Device<float> from(x), out(std::vector<float>(blocks, 0.0f));
  sums<<<blocks, 160>>>(from.at, out.at, chunks);
  return verdict(out.back(), want, 1e-5);
}

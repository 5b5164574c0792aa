// Load from memory to LDS without registers: each lane gives its source, the wavefront gives one destination.
#include <hip/hip_runtime.h>
#include <cstdint>

constexpr int THREADS = 256, CHUNK = 1024;  // floats per stage
typedef __attribute__((address_space(1))) const uint32_t global_word;
typedef __attribute__((address_space(3))) uint32_t lds_word;

// Copy 64 lanes x 4 bytes to `to` (the same in all lanes), in the order of the lanes.
__device__ void load_wave(const float* from, float* to) {
  __builtin_amdgcn_global_load_lds((global_word*)from, (lds_word*)to, 4, 0, 0);
}

extern "C" __global__ void __launch_bounds__(THREADS) row_sums(const float* x, float* out, int chunks) {
  __shared__ float ring[2][CHUNK];
  x += size_t(blockIdx.x) * chunks * CHUNK;
  const int wave = __builtin_amdgcn_readfirstlane(threadIdx.x / 64), lane = threadIdx.x % 64;  // provably uniform
  auto fetch = [&](int chunk) {
    for (int part = wave; part < CHUNK / 64; part += THREADS / 64)
      load_wave(x + chunk * CHUNK + part * 64 + lane, &ring[chunk % 2][part * 64]);
  };
  float sum = 0;
  fetch(0);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    __builtin_amdgcn_s_waitcnt(0x0f70);  // vmcnt(0), all other counters at their largest: the loads have landed
    __syncthreads();
    if (chunk + 1 < chunks) fetch(chunk + 1);  // in flight while this chunk is summed
    for (int at = threadIdx.x; at < CHUNK; at += THREADS) sum += ring[chunk % 2][at];
  }
  atomicAdd(out + blockIdx.x, sum);
}

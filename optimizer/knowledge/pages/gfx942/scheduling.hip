// Tell the scheduler how to interleave loads, LDS accesses and MFMA in the main loop, and which wave has priority.
#include <hip/hip_runtime.h>
#include <cstdint>

typedef short bf16x4 __attribute__((ext_vector_type(4)));
typedef float floatx4 __attribute__((ext_vector_type(4)));
enum { MFMA = 0x8, VMEM_READ = 0x20, LDS_READ = 0x100, LDS_WRITE = 0x200 };

// One wavefront multiplies a [16, k] by b [64, k] transposed. b passes through LDS; k is a multiple of 16.
extern "C" __global__ void __launch_bounds__(64) tiles(const uint16_t* a, const uint16_t* b, float* c, int k) {
  __shared__ uint16_t right[2][64][16 + 4];
  const int lane = threadIdx.x, within = lane % 16, group = lane / 16;
  floatx4 d[4] = {};
  bf16x4 next[4];
  auto load = [&](int start) {  // lane l: column l, sixteen k
    for (int i = 0; i < 4; ++i) next[i] = *reinterpret_cast<const bf16x4*>(b + lane * k + start + 4 * i);
  };
  auto keep = [&](int stage) {
    for (int i = 0; i < 4; ++i) *reinterpret_cast<bf16x4*>(&right[stage][lane][4 * i]) = next[i];
  };
  load(0);
  keep(0);
  for (int start = 0, stage = 0; start < k; start += 16, stage ^= 1) {
    __syncthreads();
    load(start + 16 < k ? start + 16 : start);
    const bf16x4 mine = *reinterpret_cast<const bf16x4*>(a + within * k + start + 4 * group);
    bf16x4 theirs[4];
    for (int t = 0; t < 4; ++t) theirs[t] = *reinterpret_cast<const bf16x4*>(&right[stage][16 * t + within][4 * group]);
    __builtin_amdgcn_s_setprio(1);  // while this wave feeds the matrix unit, its instructions go before other waves'
    for (int t = 0; t < 4; ++t) d[t] = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(mine, theirs[t], d[t], 0, 0, 0);
    __builtin_amdgcn_s_setprio(0);
    keep(stage ^ 1);
    // The wanted order of the instructions above, group by group: (kind, count, number of the pipeline).
    __builtin_amdgcn_sched_group_barrier(VMEM_READ, 5, 0);
    __builtin_amdgcn_sched_group_barrier(LDS_READ, 2, 0);
    for (int t = 0; t < 2; ++t) {
      __builtin_amdgcn_sched_group_barrier(MFMA, 1, 0);
      __builtin_amdgcn_sched_group_barrier(LDS_READ, 1, 0);
    }
    __builtin_amdgcn_sched_group_barrier(MFMA, 2, 0);
    __builtin_amdgcn_sched_group_barrier(LDS_WRITE, 4, 0);
  }
  for (int t = 0; t < 4; ++t)
    for (int r = 0; r < 4; ++r) c[(4 * group + r) * 64 + 16 * t + within] = d[t][r];
}

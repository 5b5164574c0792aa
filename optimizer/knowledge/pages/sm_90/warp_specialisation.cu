// Compute c = a * b^T in bf16. One warpgroup issues TMA loads, two multiply: 128 x 128 tiles, 64 along k, four stages.
#include <cuda_bf16.h>
#include "hopper.cuh"  // barriers, load_box, descriptor, tensor_map: see the pages mbarrier, tma and wgmma

constexpr int STAGES = 4, TILE = 128, DEPTH = 64, BOX = TILE * DEPTH * 2;

__device__ void wgmma_m64n128k16(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
      "%64, %65, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b));
}

__global__ void __launch_bounds__(384) gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                                            float* c, int n, int k) {
  extern __shared__ char raw[];
  char* ring = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(raw) + 1023) & ~uintptr_t(1023));
  __shared__ uint64_t full[STAGES], empty[STAGES];
  const int row = blockIdx.y * TILE, column = blockIdx.x * TILE, group = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) init(&full[s], 1), init(&empty[s], 8);  // one arrival a consumer warp
    publish_barriers();
  }
  __syncthreads();
  if (group == 0) {  // producer: needs few registers and gives the others up
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0)
      for (int i = 0; i < k / DEPTH; ++i) {
        const int stage = i % STAGES;
        wait(&empty[stage], (i / STAGES & 1) ^ 1);
        arrive_expecting(&full[stage], 2 * BOX);
        load_box(ring + stage * 2 * BOX, &a, i * DEPTH, row, &full[stage]);
        load_box(ring + stage * 2 * BOX + BOX, &b, i * DEPTH, column, &full[stage]);
      }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");  // 40 + 2 * 232 for 128 threads each: 64,512 registers
  const int mine = group - 1;                            // this warpgroup's 64 rows of the tile
  float d[64] = {};
  for (int i = 0; i < k / DEPTH; ++i) {
    const int stage = i % STAGES;
    wait(&full[stage], i / STAGES & 1);
    const uint64_t left = descriptor(ring + stage * 2 * BOX + mine * BOX / 2);
    const uint64_t right = descriptor(ring + stage * 2 * BOX + BOX);
    wgmma_begin();
    for (int step = 0; step < 4; ++step) wgmma_m64n128k16(d, left + 2 * step, right + 2 * step);
    wgmma_commit();
    wgmma_wait<1>();  // the WGMMAs of this stage run on; those of the stage before have finished reading
    if (i > 0 && threadIdx.x % 32 == 0) arrive(&empty[(i - 1) % STAGES]);
  }
  wgmma_wait<0>();
  const int lane = threadIdx.x % 128, r = row + mine * 64 + 16 * (lane / 32) + lane % 32 / 4, q = column + 2 * (lane % 4);
  for (int group8 = 0; group8 < 16; ++group8)
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<float2*>(c + size_t(r + 8 * half) * n + q + group8 * 8) =
          make_float2(d[group8 * 4 + half * 2], d[group8 * 4 + half * 2 + 1]);
}

void launch(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m, int n, int k) {
  const CUtensorMap left = tensor_map(a, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, m, k, TILE);
  const CUtensorMap right = tensor_map(b, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, n, k, TILE);
  const int bytes = STAGES * 2 * BOX + 1024;
  cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  gemm<<<dim3(n / TILE, m / TILE), 384, bytes>>>(left, right, c, n, k);
}

// --- check ---
#include "../check.h"

int main() {
  const int m = 256, n = 384, k = 640;
  const auto a = converted<__nv_bfloat16>(normal(m * k, 1)), b = converted<__nv_bfloat16>(normal(n * k, 2));
  Device<__nv_bfloat16> left(a), right(b);
  Device<float> c(std::vector<float>(m * n));
  launch(left.at, right.at, c.at, m, n, k);
  return verdict(c.back(), product(a, b, m, n, k), 1e-5);
}

// Compute c = a * b^T in fp8 (e4m3fn) with WGMMA, and add its sums to float32 registers every 128 values of k.
#include <cuda_fp8.h>
#include "hopper.cuh"  // barriers, load_box, descriptor, tensor_map: see the pages mbarrier, tma and wgmma

constexpr int TILE = 128, DEPTH = 128, BOX = TILE * DEPTH;  // 128 values of one byte: a row of the swizzle

__device__ void wgmma_m64n128k32(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
      "%64, %65, 1, 1, 1;"
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

// One tile of 128 x 128, two warpgroups; a single stage keeps the example short.
__global__ void __launch_bounds__(256) gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                                            float* c, int n, int k) {
  __shared__ alignas(1024) char left[BOX], right[BOX];
  __shared__ uint64_t full;
  const int row = blockIdx.y * TILE, column = blockIdx.x * TILE, group = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    init(&full, 1);
    publish_barriers();
  }
  __syncthreads();
  float total[64] = {};
  for (int i = 0; i < k / DEPTH; ++i) {
    if (threadIdx.x == 0) {
      arrive_expecting(&full, 2 * BOX);
      load_box(left, &a, i * DEPTH, row, &full);
      load_box(right, &b, i * DEPTH, column, &full);
    }
    wait(&full, i & 1);
    float d[64] = {};  // the tensor core's sums of this block alone
    wgmma_begin();
    for (int step = 0; step < 4; ++step)  // 32 values are 32 bytes: 2 units of the descriptor
      wgmma_m64n128k32(d, descriptor(left + group * BOX / 2) + 2 * step, descriptor(right) + 2 * step);
    wgmma_commit();
    wgmma_wait<0>();
    for (int e = 0; e < 64; ++e) total[e] += d[e];  // promotion; block scales would be multiplied in here
    __syncthreads();
  }
  const int lane = threadIdx.x % 128, r = row + group * 64 + 16 * (lane / 32) + lane % 32 / 4, q = column + 2 * (lane % 4);
  for (int e = 0; e < 64; ++e) c[size_t(r + (e / 2 % 2) * 8) * n + q + e / 4 * 8 + e % 2] = total[e];
}

void launch(const __nv_fp8_e4m3* a, const __nv_fp8_e4m3* b, float* c, int m, int n, int k) {
  const CUtensorMap left = tensor_map(a, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, m, k, TILE);
  const CUtensorMap right = tensor_map(b, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, n, k, TILE);
  gemm<<<dim3(n / TILE, m / TILE), 256>>>(left, right, c, n, k);
}

// --- check ---
#include "../check.h"

int main() {
  const int m = 128, n = 256, k = 4096;
  const auto a = converted<__nv_fp8_e4m3>(normal(m * k, 1)), b = converted<__nv_fp8_e4m3>(normal(n * k, 2));
  Device<__nv_fp8_e4m3> left(a), right(b);
  Device<float> c(std::vector<float>(m * n));
  launch(left.at, right.at, c.at, m, n, k);
  return verdict(c.back(), product(a, b, m, n, k), 2e-3);
}

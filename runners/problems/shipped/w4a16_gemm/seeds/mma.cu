// Product with 4-bit weights: 16 rows by 64 columns a block, eight warps that share out the groups along k. Words become
// bf16 pairs by LOP3; the order of k within a word is permuted alike for both operands. Sums are scaled once a group.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cstdint>

namespace {

constexpr int TILE_M = 16, TILE_N = 64, WARPS = 8;

__device__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Nibbles i and i + 4 of a word, less 8, as two bf16 numbers: 0x4300 is 128, whose last mantissa bit is worth 1.
__device__ uint32_t unpacked(uint32_t word, int i) {
  uint32_t bits;
  asm("lop3.b32 %0, %1, 0x000F000F, 0x43004300, 0xEA;" : "=r"(bits) : "r"(word >> (4 * i)));
  const __nv_bfloat162 pair = __hsub2(*reinterpret_cast<__nv_bfloat162*>(&bits), __float2bfloat162_rn(136.0f));
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Of eight neighbours of x: (0, 4), (1, 5), (2, 6), (3, 7), the order in which `unpacked` gives the weights.
__device__ void reordered(const uint4& eight, uint32_t (&pairs)[4]) {
  pairs[0] = __byte_perm(eight.x, eight.z, 0x5410);
  pairs[1] = __byte_perm(eight.x, eight.z, 0x7632);
  pairs[2] = __byte_perm(eight.y, eight.w, 0x5410);
  pairs[3] = __byte_perm(eight.y, eight.w, 0x7632);
}

__global__ void __launch_bounds__(WARPS * 32) gemm(const uint16_t* x, const uint32_t* packed, const __nv_bfloat16* scales,
                                                   __nv_bfloat16* out, int m, int n, int k) {
  __shared__ float parts[WARPS][TILE_M][TILE_N];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int row = blockIdx.y * TILE_M, column = blockIdx.x * TILE_N, groups = k / 128;
  float total[8][4] = {};
  for (int group = warp; group < groups; group += WARPS) {
    uint32_t left[4][2][4];  // this thread's part of x: for each of its four words two operands
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + g + 8 * half;
      const uint4* from = reinterpret_cast<const uint4*>(x + size_t(r) * k + group * 128) + 4 * t;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        uint32_t pairs[4];
        reordered(r < m ? from[c] : make_uint4(0, 0, 0, 0), pairs);
        left[c][0][half] = pairs[0], left[c][0][2 + half] = pairs[1];
        left[c][1][half] = pairs[2], left[c][1][2 + half] = pairs[3];
      }
    }
#pragma unroll
    for (int tile = 0; tile < 8; ++tile) {
      const int first = column + tile * 8;
      if (first >= n) break;  // n is a multiple of 16: tiles of 8 columns are whole
      const uint4 words = __ldcs(reinterpret_cast<const uint4*>(packed + size_t(first + g) * (k / 8) + group * 16) + t);
      const uint32_t four[4] = {words.x, words.y, words.z, words.w};
      float d[4] = {};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        mma(d, left[c][0], unpacked(four[c], 0), unpacked(four[c], 1));
        mma(d, left[c][1], unpacked(four[c], 2), unpacked(four[c], 3));
      }
      const float even = __bfloat162float(scales[size_t(first + 2 * t) * groups + group]);
      const float odd = __bfloat162float(scales[size_t(first + 2 * t + 1) * groups + group]);
      total[tile][0] += d[0] * even, total[tile][1] += d[1] * odd;
      total[tile][2] += d[2] * even, total[tile][3] += d[3] * odd;
    }
  }
#pragma unroll
  for (int tile = 0; tile < 8; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e) parts[warp][g + e / 2 * 8][tile * 8 + 2 * t + e % 2] = total[tile][e];
  __syncthreads();
  for (int at = threadIdx.x; at < TILE_M * TILE_N; at += WARPS * 32) {
    const int r = at / TILE_N, c = at % TILE_N;
    float sum = 0.0f;
    for (int part = 0; part < WARPS; ++part) sum += parts[part][r][c];
    if (row + r < m && column + c < n) out[size_t(row + r) * n + column + c] = __float2bfloat16_rn(sum);
  }
}

}  // namespace

// x [m, k], packed [n, k/8], scales [n, k/128], out [m, n]: row-major; k is a multiple of 128, n of 16.
extern "C" void w4a16_gemm(const uint16_t* x, const int32_t* packed, const uint16_t* scales, uint16_t* out, int64_t m,
                           int64_t n, int64_t k, cudaStream_t stream) {
  const dim3 grid((n + TILE_N - 1) / TILE_N, (m + TILE_M - 1) / TILE_M);
  gemm<<<grid, WARPS * 32, 0, stream>>>(x, reinterpret_cast<const uint32_t*>(packed),
                                        reinterpret_cast<const __nv_bfloat16*>(scales),
                                        reinterpret_cast<__nv_bfloat16*>(out), int(m), int(n), int(k));
}

// Block-scaled fp8 product on the fp8 matrix cores of CDNA 3: a tile of 64 by 64 a workgroup of four waves, 128 along k
// at a time through LDS, where both factors are turned so that k is innermost, as v_mfma_f32_16x16x32_fp8_fp8 wants it.
#include <cstdint>
#include <hip/hip_runtime.h>

constexpr int TILE = 64, DEPTH = 128, PITCH = DEPTH + 8, THREADS = 256;
typedef float float4_t __attribute__((ext_vector_type(4)));

__device__ uint16_t to_bfloat16(float x) {  // round to nearest even
  const uint32_t bits = __float_as_uint(x);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// 64 rows by 128 columns of a column-major matrix into LDS, k innermost; four rows a load. The matrix's
// rows are a multiple of 4; those beyond its end count as zero.
__device__ void turn(uint8_t (*tile)[PITCH], const uint8_t* matrix, int64_t rows, int64_t row, int64_t depth) {
  for (int at = threadIdx.x; at < TILE / 4 * DEPTH; at += THREADS) {
    const int r = at % (TILE / 4) * 4, p = at / (TILE / 4);
    const uint8_t* place = matrix + row + r + (depth + p) * rows;
    const uint32_t four = row + r < rows ? *reinterpret_cast<const uint32_t*>(place) : 0;
    for (int u = 0; u < 4; ++u) tile[r + u][p] = static_cast<uint8_t>(four >> 8 * u);
  }
}

__global__ void __launch_bounds__(THREADS) gemm(const uint8_t* a, const uint8_t* b, const float* a_scale,
                                                const float* b_scale, uint16_t* out, int64_t m, int64_t n, int64_t k) {
  __shared__ uint8_t left[TILE][PITCH], right[TILE][PITCH];
  const int64_t row = blockIdx.x * int64_t(TILE), col = blockIdx.y * int64_t(TILE), scale_rows = (n + 127) / 128;
  const int wave = threadIdx.x / 64, lane = threadIdx.x % 64, group = lane / 16, within = lane % 16;
  float4_t total[4] = {};  // this wave's 16 rows by four tiles of 16 columns
  for (int64_t block = 0; block < k / DEPTH; ++block) {
    turn(left, a, m, row, block * DEPTH);
    turn(right, b, n, col, block * DEPTH);
    __syncthreads();
    float4_t sum[4] = {};
    for (int p = 0; p < DEPTH; p += 32) {
      const long mine = *reinterpret_cast<const long*>(&left[wave * 16 + within][p + group * 8]);
      for (int t = 0; t < 4; ++t) {
        const long theirs = *reinterpret_cast<const long*>(&right[t * 16 + within][p + group * 8]);
        sum[t] = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(mine, theirs, sum[t], 0, 0, 0);
      }
    }
    const float columns = b_scale[col / 128 + block * scale_rows];
    for (int r = 0; r < 4; ++r) {
      const bool inside = row + wave * 16 + group * 4 + r < m;
      const float scale = inside ? a_scale[row + wave * 16 + group * 4 + r + block * m] * columns : 0.0f;
      for (int t = 0; t < 4; ++t) total[t][r] += sum[t][r] * scale;
    }
    __syncthreads();
  }
  for (int t = 0; t < 4; ++t)
    for (int r = 0; r < 4; ++r)
      if (row + wave * 16 + group * 4 + r < m)
        out[(row + wave * 16 + group * 4 + r) * n + col + t * 16 + within] = to_bfloat16(total[t][r]);
}

extern "C" void fp8_block_gemm(const uint8_t* a, const uint8_t* b, const float* a_scale, const float* b_scale,
                               uint16_t* out, int64_t m, int64_t n, int64_t k, hipStream_t stream) {
  gemm<<<dim3((m + TILE - 1) / TILE, n / TILE), THREADS, 0, stream>>>(a, b, a_scale, b_scale, out, m, n, k);
}

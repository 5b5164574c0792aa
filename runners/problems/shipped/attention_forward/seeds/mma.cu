// Causal attention with mma.sync: four warps of 16 queries each, blocks of 64 keys through shared memory, online softmax.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cmath>
#include <cstdint>

namespace {

constexpr int BLOCK_Q = 64, BLOCK_K = 64, THREADS = 128;

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ void ldmatrix(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)));
}
__device__ void ldmatrix_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)));
}
__device__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ uint32_t packed(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
// Over the four lanes that share a row.
__device__ float row_maximum(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
  return fmaxf(value, __shfl_xor_sync(~0u, value, 2));
}
__device__ float row_sum(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  return value + __shfl_xor_sync(~0u, value, 2);
}

// 64 rows from `first` on, zeros beyond `length`; rows are padded by 16 bytes, so that ldmatrix has no conflicts.
template <int DIM>
__device__ void load_rows(__nv_bfloat16 (*tile)[DIM + 8], const __nv_bfloat16* matrix, int first, int length) {
  constexpr int PIECES = DIM / 8;
  for (int at = threadIdx.x; at < 64 * PIECES; at += THREADS) {
    const int row = at / PIECES, piece = at % PIECES;
    int4 value = make_int4(0, 0, 0, 0);
    if (first + row < length) value = *reinterpret_cast<const int4*>(matrix + size_t(first + row) * DIM + piece * 8);
    *reinterpret_cast<int4*>(&tile[row][piece * 8]) = value;
  }
}

template <int DIM>
__global__ void __launch_bounds__(THREADS) attention(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v,
                                                     __nv_bfloat16* out, int heads, int kv_heads, int length, float scale) {
  __shared__ alignas(16) __nv_bfloat16 keys[64][DIM + 8], values[64][DIM + 8];
  const int block = gridDim.x - 1 - blockIdx.x, head = blockIdx.y;  // long rows first
  const size_t shared = size_t(head / heads * kv_heads + head % heads / (heads / kv_heads)) * length * DIM;
  q += size_t(head) * length * DIM, out += size_t(head) * length * DIM, k += shared, v += shared;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = block * BLOCK_Q + warp * 16 + lane / 4;

  uint32_t queries[DIM / 16][4];  // 16 queries as operands, kept in registers
  load_rows<DIM>(keys, q, block * BLOCK_Q, length);
  __syncthreads();
  for (int p = 0; p < DIM / 16; ++p) ldmatrix(queries[p], &keys[warp * 16 + lane % 16][p * 16 + lane / 16 * 8]);
  __syncthreads();

  float total[DIM / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  for (int start = 0; start < min((block + 1) * BLOCK_Q, length); start += BLOCK_K) {
    load_rows<DIM>(keys, k, start, length);
    load_rows<DIM>(values, v, start, length);
    __syncthreads();
    float scores[8][4] = {};
#pragma unroll
    for (int p = 0; p < DIM / 16; ++p)
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {  // 16 keys: two columns of tiles
        uint32_t b[4];
        ldmatrix(b, &keys[pair * 16 + lane / 16 * 8 + lane % 8][p * 16 + lane / 8 % 2 * 8]);
        mma(scores[2 * pair], queries[p], b[0], b[1]);
        mma(scores[2 * pair + 1], queries[p], b[2], b[3]);
      }
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // this row, and the one 8 below
      float higher = top[half];
#pragma unroll
      for (int t = 0; t < 8; ++t)
#pragma unroll
        for (int u = 0; u < 2; ++u) {
          float& score = scores[t][2 * half + u];
          score = start + t * 8 + 2 * (lane % 4) + u <= row + 8 * half ? score * scale : -INFINITY;
          higher = fmaxf(higher, score);
        }
      higher = row_maximum(higher);  // finite: every row sees key 0
      const float shrink = exp2f(top[half] - higher);
      float part = 0.0f;
#pragma unroll
      for (int t = 0; t < 8; ++t)
#pragma unroll
        for (int u = 0; u < 2; ++u) part += scores[t][2 * half + u] = exp2f(scores[t][2 * half + u] - higher);
      sum[half] = sum[half] * shrink + row_sum(part);
      top[half] = higher;
#pragma unroll
      for (int t = 0; t < DIM / 8; ++t) total[t][2 * half] *= shrink, total[t][2 * half + 1] *= shrink;
    }
#pragma unroll
    for (int p = 0; p < 4; ++p) {  // 16 keys: the results of the first product are the operands of the second
      const uint32_t weights[4] = {packed(scores[2 * p][0], scores[2 * p][1]), packed(scores[2 * p][2], scores[2 * p][3]),
                                   packed(scores[2 * p + 1][0], scores[2 * p + 1][1]),
                                   packed(scores[2 * p + 1][2], scores[2 * p + 1][3])};
#pragma unroll
      for (int pair = 0; pair < DIM / 16; ++pair) {
        uint32_t b[4];
        ldmatrix_transposed(b, &values[p * 16 + lane / 8 % 2 * 8 + lane % 8][pair * 16 + lane / 16 * 8]);
        mma(total[2 * pair], weights, b[0], b[1]);
        mma(total[2 * pair + 1], weights, b[2], b[3]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (row + 8 * half < length)
#pragma unroll
      for (int t = 0; t < DIM / 8; ++t)
        *reinterpret_cast<__nv_bfloat162*>(out + size_t(row + 8 * half) * DIM + t * 8 + 2 * (lane % 4)) =
            __floats2bfloat162_rn(total[t][2 * half] / sum[half], total[t][2 * half + 1] / sum[half]);
}

}  // namespace

// q, out [batch, heads, length, dim], k, v [batch, kv_heads, length, dim]: bfloat16, contiguous; dim is 64 or 128.
extern "C" void attention_forward(const uint16_t* q, const uint16_t* k, const uint16_t* v, uint16_t* out, int64_t batch,
                                  int64_t heads, int64_t kv_heads, int64_t length, int64_t dim, cudaStream_t stream) {
  const dim3 grid((length + BLOCK_Q - 1) / BLOCK_Q, batch * heads);
  const float scale = 1.4426950408889634f / std::sqrt(float(dim));  // scores are powers of two
  const auto run = dim == 64 ? attention<64> : attention<128>;
  run<<<grid, THREADS, 0, stream>>>(
      reinterpret_cast<const __nv_bfloat16*>(q), reinterpret_cast<const __nv_bfloat16*>(k),
      reinterpret_cast<const __nv_bfloat16*>(v), reinterpret_cast<__nv_bfloat16*>(out), heads, kv_heads, length, scale);
}

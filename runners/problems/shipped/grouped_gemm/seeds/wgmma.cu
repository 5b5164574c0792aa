// Products of each expert's tokens with its weights on Hopper: one launch, a block finds its expert and its rows, TMA fills
// a ring of stages, two warpgroups multiply 128 x 128 with WGMMA. Rows of a neighbouring expert are read, never stored.
// @tune STAGES 3 4 5 6 default=5
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cstdint>

namespace {

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
__device__ void wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(shared_address(barrier)), "r"(parity) : "memory");
}
__device__ void load_box(void* to, const CUtensorMap* map, int column, int row, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
      ::"r"(shared_address(to)), "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)) : "memory");
}
// A K-major tile with rows of 128 bytes and the 128-byte swizzle; groups of 8 rows every 1024 bytes.
__device__ uint64_t descriptor(const void* tile) {
  return (uint64_t(shared_address(tile)) & 0x3FFFF) >> 4 | uint64_t(1) << 16 | uint64_t(64) << 32 | uint64_t(1) << 62;
}
__device__ void begin_wgmma() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit_wgmma() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
__device__ void wait_wgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

constexpr int TILE_M = 128, TILE_N = 128, DEPTH = 64, STAGE_BYTES = (TILE_M + TILE_N) * 128;

// d [64, 128] = a [64, 16] * b [128, 16]^T (+ d where ADD), by the 128 threads of a warpgroup together.
template <int ADD>
__device__ void wgmma_m64n128k16(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
      "%64, %65, %66, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "n"(ADD));
}

struct Place {
  int expert = -1, first = 0, end = 0;
};

// The expert of a tile of rows, its first row, and where the expert's rows end.
__device__ Place place_of(int number, const int* offsets, int experts) {
  Place place;
  int begin = 0;
  for (int expert = 0; expert < experts; ++expert) {
    const int end = offsets[expert], tiles = (end - begin + TILE_M - 1) / TILE_M;
    if (number >= 0 && number < tiles) place.expert = expert, place.first = begin + number * TILE_M, place.end = end;
    number -= tiles;
    begin = end;
  }
  return place;
}

__global__ void __launch_bounds__(384) grouped(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                                               const int* offsets, __nv_bfloat16* out, int experts, int n, int k) {
  extern __shared__ char raw[];
  char* ring = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(raw) + 1023) & ~uintptr_t(1023));
  __shared__ uint64_t full[STAGES], empty[STAGES];
  const Place place = place_of(blockIdx.y, offsets, experts);
  if (place.expert < 0) return;  // the grid is an upper bound
  const int row = place.first, column = blockIdx.x * TILE_N, group = threadIdx.x / 128, steps = (k + DEPTH - 1) / DEPTH;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) init(&full[s], 1), init(&empty[s], 8);  // one arrival a consumer warp
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  __syncthreads();
  if (group == 0) {  // the producer: one thread issues all loads, its warpgroup gives registers up
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0)
      for (int i = 0; i < steps; ++i) {
        const int stage = i % STAGES;
        char* here = ring + stage * STAGE_BYTES;
        wait(&empty[stage], (i / STAGES & 1) ^ 1);
        arrive_expecting(&full[stage], STAGE_BYTES);
        load_box(here, &x, i * DEPTH, row, &full[stage]);
        load_box(here + TILE_M * 128, &w, i * DEPTH, place.expert * n + column, &full[stage]);
      }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  float d[64] = {};
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    const int stage = i % STAGES;
    wait(&full[stage], i / STAGES & 1);
    const char* here = ring + stage * STAGE_BYTES;
    const uint64_t left = descriptor(here + (group - 1) * 64 * 128), right = descriptor(here + TILE_M * 128);
    begin_wgmma();
#pragma unroll
    for (int step = 0; step < 4; ++step) wgmma_m64n128k16<1>(d, left + 2 * step, right + 2 * step);
    commit_wgmma();
    wait_wgmma<1>();  // the stage before this one has been read
    if (i > 0 && threadIdx.x % 32 == 0) arrive(&empty[(i - 1) % STAGES]);
  }
  wait_wgmma<0>();
  const int lane = threadIdx.x % 128, r = row + (group - 1) * 64 + 16 * (lane / 32) + lane % 32 / 4;
#pragma unroll
  for (int part = 0; part < 16; ++part) {
    const int c = column + part * 8 + 2 * (lane % 4);
    if (c >= n) break;  // n is a multiple of 8: pairs are whole
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (r + 8 * half < place.end)
        *reinterpret_cast<__nv_bfloat162*>(out + size_t(r + 8 * half) * n + c) =
            __floats2bfloat162_rn(d[part * 4 + half * 2], d[part * 4 + half * 2 + 1]);
  }
}

// A row-major matrix in boxes of `box_rows` rows of 128 bytes; what lies outside is read as zeros.
CUtensorMap tensor_map(const void* matrix, uint64_t rows, uint64_t columns, uint32_t box_rows) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static Encode encode = [] {  // a function of the driver, found without linking it
    void* found = nullptr;
    cudaDriverEntryPointQueryResult answer;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &answer);
    return reinterpret_cast<Encode>(found);
  }();
  CUtensorMap map;
  const cuuint64_t extents[2] = {columns, rows}, strides[1] = {columns * 2};
  const cuuint32_t box[2] = {128 / 2, box_rows}, steps[2] = {1, 1};
  encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(matrix), extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
         CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

}  // namespace

// x [tokens, k], w [experts, n, k], out [tokens, n]: bfloat16, row-major; offsets [experts]: ends of the groups.
extern "C" void grouped_gemm(const uint16_t* x, const uint16_t* w, const int32_t* offsets, uint16_t* out, int64_t tokens,
                             int64_t experts, int64_t n, int64_t k, cudaStream_t stream) {
  const CUtensorMap rows = tensor_map(x, tokens, k, TILE_M), weights = tensor_map(w, experts * n, k, TILE_N);
  const int bytes = STAGES * STAGE_BYTES + 1024;
  const dim3 grid((n + TILE_N - 1) / TILE_N, (tokens + TILE_M - 1) / TILE_M + experts);
  cudaFuncSetAttribute(grouped, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  grouped<<<grid, 384, bytes, stream>>>(rows, weights, offsets, reinterpret_cast<__nv_bfloat16*>(out), int(experts),
                                        int(n), int(k));
}

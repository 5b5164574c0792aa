// gelu(a @ b.T + bias) on Hopper: TMA fills a ring of stages, two warpgroups multiply 128 x 256 with WGMMA.
// @tune STAGES 3 4 default=4
// @tune GROUP 4 8 16 default=8
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

constexpr int TILE_M = 128, TILE_N = 256, DEPTH = 64, STAGE_BYTES = (TILE_M + TILE_N) * 128;

// d [64, 256] = a [64, 16] * b [256, 16]^T (+ d where ADD), by the 128 threads of a warpgroup together.
template <int ADD>
__device__ void wgmma_m64n256k16(float (&d)[128], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
      "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
      "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
      "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
      "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}, "
      "%128, %129, %130, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
        "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
        "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
        "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),
        "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),
        "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
        "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
      : "l"(a), "l"(b), "n"(ADD));
}

// Row and column of a tile: groups of GROUP rows of tiles, column by column, so that both factors stay in L2.
__device__ int2 tile_at(int number, int rows, int columns) {
  const int group = number / (GROUP * columns), first = group * GROUP, height = min(GROUP, rows - first);
  const int inside = number - group * GROUP * columns;
  return make_int2(first + inside % height, inside / height);
}

__device__ float gelu(float x) {
  const float inside = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  return __fdividef(x, 1.0f + __expf(-2.0f * inside));
}

// Two neighbours of a row, the second only inside the matrix.
__device__ void store_pair(__nv_bfloat16* to, float first, float second, bool both, bool aligned) {
  if (both && aligned)
    *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(first, second);
  else {
    to[0] = __float2bfloat16_rn(first);
    if (both) to[1] = __float2bfloat16_rn(second);
  }
}

__global__ void __launch_bounds__(384) gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                                            const __nv_bfloat16* bias, __nv_bfloat16* out, int m, int n, int k) {
  extern __shared__ char raw[];
  char* ring = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(raw) + 1023) & ~uintptr_t(1023));
  __shared__ uint64_t full[STAGES], empty[STAGES];
  const int2 at = tile_at(blockIdx.x, (m + TILE_M - 1) / TILE_M, (n + TILE_N - 1) / TILE_N);
  const int row = at.x * TILE_M, column = at.y * TILE_N, group = threadIdx.x / 128, steps = (k + DEPTH - 1) / DEPTH;
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
        load_box(here, &a, i * DEPTH, row, &full[stage]);
        load_box(here + TILE_M * 128, &b, i * DEPTH, column, &full[stage]);
      }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  float d[128] = {};
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    const int stage = i % STAGES;
    wait(&full[stage], i / STAGES & 1);
    const char* here = ring + stage * STAGE_BYTES;
    const uint64_t left = descriptor(here + (group - 1) * 64 * 128), right = descriptor(here + TILE_M * 128);
    begin_wgmma();
#pragma unroll
    for (int step = 0; step < 4; ++step) wgmma_m64n256k16<1>(d, left + 2 * step, right + 2 * step);
    commit_wgmma();
    wait_wgmma<1>();  // the stage before this one has been read
    if (i > 0 && threadIdx.x % 32 == 0) arrive(&empty[(i - 1) % STAGES]);
  }
  wait_wgmma<0>();
  const int lane = threadIdx.x % 128, r = row + (group - 1) * 64 + 16 * (lane / 32) + lane % 32 / 4;
#pragma unroll
  for (int part = 0; part < 32; ++part) {
    const int c = column + part * 8 + 2 * (lane % 4);
    if (c >= n) break;
    const bool both = c + 1 < n;
    const float first = __bfloat162float(bias[c]), second = both ? __bfloat162float(bias[c + 1]) : 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (r + 8 * half < m)
        store_pair(out + size_t(r + 8 * half) * n + c, gelu(d[part * 4 + half * 2] + first),
                   gelu(d[part * 4 + half * 2 + 1] + second), both, n % 2 == 0);
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

// a [m, k], b [n, k], bias [n], out [m, n]: bfloat16, row-major; k is a multiple of 8.
extern "C" void bf16_gemm_bias_gelu(const uint16_t* a, const uint16_t* b, const uint16_t* bias, uint16_t* out, int64_t m,
                                    int64_t n, int64_t k, cudaStream_t stream) {
  const CUtensorMap left = tensor_map(a, m, k, TILE_M), right = tensor_map(b, n, k, TILE_N);
  const int tiles = int((m + TILE_M - 1) / TILE_M * ((n + TILE_N - 1) / TILE_N)), bytes = STAGES * STAGE_BYTES + 1024;
  cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  gemm<<<tiles, 384, bytes, stream>>>(left, right, reinterpret_cast<const __nv_bfloat16*>(bias),
                                      reinterpret_cast<__nv_bfloat16*>(out), int(m), int(n), int(k));
}

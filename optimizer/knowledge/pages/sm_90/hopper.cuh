// Helpers of the longer snippets for Hopper, each explained on a page: barriers (mbarrier), boxes (tma), descriptors and
// fences (wgmma). A kernel that is submitted as one file carries those that it needs.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdint>

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ inline void init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;"); }
__device__ inline void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ inline void arrive_expecting(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ inline void wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(shared_address(barrier)), "r"(parity) : "memory");
}
__device__ inline void load_box(void* to, const CUtensorMap* map, int column, int row, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
      ::"r"(shared_address(to)), "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)) : "memory");
}

// K-major tile, rows of 128 bytes, 128-byte swizzle.
__device__ inline uint64_t descriptor(const void* tile) {
  return (uint64_t(shared_address(tile)) & 0x3FFFF) >> 4 | uint64_t(1) << 16 | uint64_t(64) << 32 | uint64_t(1) << 62;
}
__device__ inline void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
__device__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// A row-major matrix of elements of `size` bytes, read in boxes whose rows are 128 bytes.
inline CUtensorMap tensor_map(const void* matrix, CUtensorMapDataType type, int size, uint64_t rows, uint64_t columns,
                              uint32_t box_rows) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static Encode encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult answer;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &answer);
    return reinterpret_cast<Encode>(found);
  }();
  CUtensorMap map;
  const cuuint64_t extents[2] = {columns, rows}, strides[1] = {columns * size};
  const cuuint32_t box[2] = {uint32_t(128 / size), box_rows}, steps[2] = {1, 1};
  encode(&map, type, 2, const_cast<void*>(matrix), extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
         CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

// Load a 64 x 64 box of a row-major bf16 matrix by TMA into swizzled shared memory, and store it by TMA.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cstdint>

// The encoder is a driver function: asking the runtime for it avoids linking libcuda.
inline CUtensorMap tensor_map(const void* matrix, uint64_t rows, uint64_t columns, uint32_t box_rows,
                              uint32_t box_columns) {
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
  const cuuint64_t extents[2] = {columns, rows}, strides[1] = {columns * 2};  // innermost first; bytes, a multiple of 16
  const cuuint32_t box[2] = {box_columns, box_rows}, steps[2] = {1, 1};
  encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(matrix), extents, strides, box, steps,
         CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);  // outside the matrix: zeros
  return map;
}

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ void wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(shared_address(barrier)), "r"(parity) : "memory");
}

// Each block moves one box. The map is a __grid_constant__ argument: TMA reads it from parameter memory.
__global__ void copy(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to) {
  __shared__ alignas(1024) char box[64 * 128];  // the 128-byte swizzle repeats every 1024 bytes
  __shared__ uint64_t loaded;
  const int column = blockIdx.x * 64, row = blockIdx.y * 64;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&loaded)));
    asm volatile("fence.mbarrier_init.release.cluster;");  // the async proxy sees the barrier
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&loaded)),
                 "r"(int(sizeof box)) : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        ::"r"(shared_address(box)), "l"(&from), "r"(column), "r"(row), "r"(shared_address(&loaded)) : "memory");
  }
  __syncthreads();
  wait(&loaded, 0);  // every thread that reads the box waits; here the box only travels on
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&to),
                 "r"(column), "r"(row), "r"(shared_address(box)) : "memory");
    asm volatile("cp.async.bulk.commit_group;");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

// --- check ---
#include "../check.h"

int main() {
  const int rows = 200, columns = 264;  // no multiple of the box: the edges are cut by the hardware
  const auto values = converted<__nv_bfloat16>(normal(rows * columns, 1));
  Device<__nv_bfloat16> from(values), to(std::vector<__nv_bfloat16>(values.size()));
  const CUtensorMap read = tensor_map(from.at, rows, columns, 64, 64), write = tensor_map(to.at, rows, columns, 64, 64);
  copy<<<dim3((columns + 63) / 64, (rows + 63) / 64), 128>>>(read, write);
  return verdict(widened(to.back()), widened(values), 0.0);
}

// One 64 x 64 tile of c = a * b^T in bf16 with WGMMA: a [64, k] and b [64, k], both K-major, k a multiple of 64.
#include <cuda_bf16.h>
#include <cstdint>

// Matrix descriptor of a K-major bf16 tile whose rows are 128 bytes (64 values) with the 128-byte swizzle.
// Bits 0-13: address / 16. 16-29: leading offset / 16, unused for swizzled K-major. 32-45: distance between groups
// of 8 rows / 16 (1024 bytes). 62-63: 1 = 128-byte swizzle. The tile begins at a multiple of 1024 bytes.
__device__ uint64_t descriptor(const void* tile) {
  const uint64_t address = __cvta_generic_to_shared(tile);
  return (address & 0x3FFFF) >> 4 | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

// Where the 16-byte piece `chunk` (0-7) of a row lies: the 128-byte swizzle XORs it with the row modulo 8.
__device__ int swizzled(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

// d [64, 64] += a [64, 16] * b [64, 16]^T: executed by the 128 threads of a warpgroup together.
__device__ void wgmma_m64n64k16(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b));
}

__global__ void __launch_bounds__(128) tile(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int k) {
  __shared__ alignas(1024) char left[64 * 128];
  __shared__ alignas(1024) char right[64 * 128];
  float d[32] = {};
  for (int start = 0; start < k; start += 64) {
    for (int at = threadIdx.x; at < 64 * 8; at += 128) {  // 16 bytes a step, consecutive threads along a row
      const int row = at / 8, chunk = at % 8;
      const size_t from = size_t(row) * k + start + chunk * 8;
      *reinterpret_cast<int4*>(left + swizzled(row, chunk)) = *reinterpret_cast<const int4*>(a + from);
      *reinterpret_cast<int4*>(right + swizzled(row, chunk)) = *reinterpret_cast<const int4*>(b + from);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // ordinary stores become visible to the async proxy
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");  // before the first WGMMA that touches these registers
    for (int step = 0; step < 4; ++step)                     // 16 values are 32 bytes: the address moves by 2 units
      wgmma_m64n64k16(d, descriptor(left) + 2 * step, descriptor(right) + 2 * step);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();  // the tiles may be overwritten
  }
  // Thread t holds rows 16 * (t / 32) + t % 32 / 4 (+ 8) and, in each group of 8 columns, 2 * (t % 4) and the next.
  const int row = 16 * (threadIdx.x / 32) + threadIdx.x % 32 / 4, column = 2 * (threadIdx.x % 4);
  for (int group = 0; group < 8; ++group)
    for (int half = 0; half < 2; ++half) {
      float* to = c + (row + 8 * half) * 64 + group * 8 + column;
      to[0] = d[group * 4 + half * 2];
      to[1] = d[group * 4 + half * 2 + 1];
    }
}

// --- check ---
#include "../check.h"

int main() {
  const int k = 256;
  const auto a = converted<__nv_bfloat16>(normal(64 * k, 1)), b = converted<__nv_bfloat16>(normal(64 * k, 2));
  Device<__nv_bfloat16> left(a), right(b);
  Device<float> c(std::vector<float>(64 * 64));
  tile<<<1, 128>>>(left.at, right.at, c.at, k);
  return verdict(c.back(), product(a, b, 64, 64, k), 1e-5);
}

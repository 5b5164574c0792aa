// One warp computes a 16 x 8 tile of c = a * b^T in bf16 with mma.sync; ldmatrix brings the fragments.
#include <cuda_bf16.h>
#include <cstdint>

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// Four 8 x 8 matrices of 16-bit values; lane l names the 16-byte row l % 8 of matrix l / 8.
__device__ void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)));
}
__device__ void ldmatrix_x2(uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(row)));
}
__device__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__global__ void tile(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int k) {  // a [16, k], b [8, k]
  __shared__ alignas(16) __nv_bfloat16 left[16][16 + 8], right[8][16 + 8];  // 48-byte rows: ldmatrix without conflicts
  const int lane = threadIdx.x;
  float d[4] = {};
  for (int start = 0; start < k; start += 16) {
    for (int at = lane; at < 16 * 16; at += 32) left[at / 16][at % 16] = a[at / 16 * k + start + at % 16];
    for (int at = lane; at < 8 * 16; at += 32) right[at / 16][at % 16] = b[at / 16 * k + start + at % 16];
    __syncwarp();
    uint32_t fragment_a[4], fragment_b[2];
    ldmatrix_x4(fragment_a, &left[lane % 16][lane / 16 * 8]);   // rows 0-7 and 8-15 of k 0-7, then of k 8-15
    ldmatrix_x2(fragment_b, &right[lane % 8][lane / 8 % 2 * 8]);  // columns 0-7 of k 0-7, then of k 8-15
    mma_m16n8k16(d, fragment_a, fragment_b);
    __syncwarp();
  }
  const int row = lane / 4, column = 2 * (lane % 4);  // d[0], d[1]: this row; d[2], d[3]: the row 8 below
  c[row * 8 + column] = d[0], c[row * 8 + column + 1] = d[1];
  c[(row + 8) * 8 + column] = d[2], c[(row + 8) * 8 + column + 1] = d[3];
}

// --- check ---
#include "../check.h"

int main() {
  const int k = 256;
  const auto a = converted<__nv_bfloat16>(normal(16 * k, 1)), b = converted<__nv_bfloat16>(normal(8 * k, 2));
  Device<__nv_bfloat16> left(a), right(b);
  Device<float> c(std::vector<float>(16 * 8));
  tile<<<1, 32>>>(left.at, right.at, c.at, k);
  return verdict(c.back(), product(a, b, 16, 8, k), 1e-5);
}

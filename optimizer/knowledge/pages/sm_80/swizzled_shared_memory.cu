// Transpose 64 x 64 bf16 tiles through shared memory. XOR-swizzled 16-byte pieces avoid bank conflicts without padding.
#include <cuda_bf16.h>
#include <cstdint>

constexpr int TILE = 64, THREADS = 256;

// Return the place of piece `chunk` (0-7) of a 128-byte row. The pieces of eight rows are in eight groups of banks.
__device__ int swizzled(int row, int chunk) { return row * TILE + ((chunk ^ (row & 7)) * 8); }

__global__ void __launch_bounds__(THREADS) transpose(const __nv_bfloat16* x, __nv_bfloat16* out, int rows, int columns) {
  __shared__ alignas(128) __nv_bfloat16 tile[TILE * TILE];
  const int row = blockIdx.y * TILE, column = blockIdx.x * TILE;
  for (int at = threadIdx.x; at < TILE * 8; at += THREADS) {  // 16 bytes in: 8 threads a row
    const int r = at / 8, chunk = at % 8;
    *reinterpret_cast<int4*>(tile + swizzled(r, chunk)) =
        *reinterpret_cast<const int4*>(x + size_t(row + r) * columns + column + chunk * 8);
  }
  __syncthreads();
  // ldmatrix.trans hands each lane a column's neighbours: four 8 x 8 matrices, one below the other, become rows of out.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int part = 0; part < 2; ++part) {
    uint32_t r[4];  // matrix i: rows part * 32 + 8 * i ..., columns 8 * warp ...
    const int from = swizzled(part * 32 + lane, warp);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(tile + from))));
    // Lane l of a transposed matrix holds column l / 4, rows 2 * (l % 4) and the next.
    for (int i = 0; i < 4; ++i)
      *reinterpret_cast<uint32_t*>(out + size_t(column + warp * 8 + lane / 4) * rows + row + part * 32 + i * 8 +
                                   2 * (lane % 4)) = r[i];
  }
}

// --- check ---
#include "../check.h"

int main() {
  const int rows = 128, columns = 192;
  const auto x = converted<__nv_bfloat16>(normal(rows * columns, 1));
  std::vector<float> want(x.size());
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) want[c * rows + r] = float(x[r * columns + c]);
  Device<__nv_bfloat16> from(x), out(std::vector<__nv_bfloat16>(x.size()));
  transpose<<<dim3(columns / TILE, rows / TILE), THREADS>>>(from.at, out.at, rows, columns);
  return verdict(widened(out.back()), want, 0.0);
}

// A 64 x 64 bf16 tile in LDS, 128-byte rows, 16-byte pieces XORed with the row: ds_read_b128 of a column of pieces
// spreads over all banks without padding.
#include <hip/hip_runtime.h>
#include <cstdint>

typedef uint32_t wordx4 __attribute__((ext_vector_type(4)));

__device__ int swizzled(int row, int piece) { return row * 8 + (piece ^ (row & 7)); }  // in pieces of 16 bytes

// out [8, 64] pieces: piece p of row r, for each p. Lane l of a wavefront reads row l: a stride of 128 bytes.
extern "C" __global__ void __launch_bounds__(256) columns_of_pieces(const wordx4* x, wordx4* out) {
  __shared__ wordx4 tile[64 * 8];
  for (int at = threadIdx.x; at < 64 * 8; at += 256) tile[swizzled(at / 8, at % 8)] = x[at];
  __syncthreads();
  const int lane = threadIdx.x % 64, wave = threadIdx.x / 64;
  for (int piece = wave; piece < 8; piece += 4) out[piece * 64 + lane] = tile[swizzled(lane, piece)];
}

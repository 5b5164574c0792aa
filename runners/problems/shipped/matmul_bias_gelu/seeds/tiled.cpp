// gelu(a @ b + bias): a register tile of TILE_M rows by TILE_N vectors, fed from a packed panel of b; bias and GELU
// are applied while the tile is still in registers. The loops around it follow Goto and van de Geijn (2008) with
// the k loop innermost, since k is small enough here for one accumulation.
//
// @tune LANES 8 16 default=8
// @tune TILE_M 2 4 6 8 12 14 default=4
// @tune TILE_N 1 2 3 4 default=2
// @tune BLOCK_M 24 48 96 192 default=48
// @tune UNROLL_K 1 2 4 default=1
// @tune PACK_A 0 1 default=0
// @constraint TILE_M * TILE_N + TILE_N < 32
// @flags -O3 -march=native | -O2 -march=native | -O3 -march=native -mprefer-vector-width=512
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#ifndef LANES
#define LANES 8
#endif
#ifndef TILE_M
#define TILE_M 4
#endif
#ifndef TILE_N  // vectors
#define TILE_N 2
#endif
#ifndef BLOCK_M  // rows of a that one task works through with the same panel of b
#define BLOCK_M 48
#endif
#ifndef UNROLL_K
#define UNROLL_K 1
#endif
#ifndef PACK_A  // 1: copy TILE_M rows of a side by side before use
#define PACK_A 0
#endif

namespace {

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
constexpr int64_t kWidth = TILE_N * LANES;
constexpr int kUnrollK = UNROLL_K;

inline Floats load(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline void store(float* p, Floats v) { std::memcpy(p, &v, sizeof v); }

inline Floats exp_of(Floats x) {
  const Floats high = Floats{} + 87.0f, low = Floats{} - 87.0f;
  x = x > high ? high : x;
  x = x < low ? low : x;
  const Floats magic = Floats{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest integer
  Floats shifted = x * 1.44269504f + magic;
  Floats n = shifted - magic;
  Floats f = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Floats p = Floats{} + 1.3981999e-3f;
  p = p * f + 8.3334519e-3f;
  p = p * f + 4.1665796e-2f;
  p = p * f + 1.6666666e-1f;
  p = p * f + 0.5f;
  p = p * f + 1.0f;
  p = p * f + 1.0f;
  return reinterpret_cast<Floats>(reinterpret_cast<Ints>(p) + (reinterpret_cast<Ints>(shifted) << 23));
}

// 0.5 x (1 + tanh(u)) is x / (1 + exp(-2u)).
inline Floats gelu(Floats x) {
  Floats u = 0.7978845608f * (x + 0.044715f * x * x * x);
  return x / (1.0f + exp_of(-2.0f * u));
}

// Columns [column, column + kWidth) of b, one row after the other, zeros beyond n.
void pack_panel(const float* b, int64_t n, int64_t k, int64_t column, float* panel) {
  const int64_t width = std::min(kWidth, n - column);
  for (int64_t p = 0; p < k; ++p) {
    std::memcpy(panel + p * kWidth, b + p * n + column, width * sizeof(float));
    for (int64_t j = width; j < kWidth; ++j) panel[p * kWidth + j] = 0.0f;
  }
}

// Rows [row, row + TILE_M) of a, transposed so that the factors of one k lie side by side.
void pack_rows(const float* a, int64_t rows, int64_t k, float* packed) {
  for (int64_t i = 0; i < TILE_M; ++i)
    for (int64_t p = 0; p < k; ++p) packed[p * TILE_M + i] = i < rows ? a[i * k + p] : 0.0f;
}

inline void accumulate(Floats (&tile)[TILE_M][TILE_N], const float* a, int64_t row_stride, int64_t k_stride,
                       int64_t k, const float* panel) {
#pragma GCC unroll kUnrollK
  for (int64_t p = 0; p < k; ++p) {
    Floats columns[TILE_N];
#pragma GCC unroll 8
    for (int v = 0; v < TILE_N; ++v) columns[v] = load(panel + p * kWidth + v * LANES);
#pragma GCC unroll 16
    for (int i = 0; i < TILE_M; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < TILE_N; ++v) tile[i][v] += a[i * row_stride + p * k_stride] * columns[v];
  }
}

void finish(const Floats (&tile)[TILE_M][TILE_N], const float* bias, float* out, int64_t n, int64_t rows,
            int64_t width) {
  for (int64_t i = 0; i < rows; ++i)
    for (int v = 0; v < TILE_N; ++v) {
      const int64_t left = std::min<int64_t>(LANES, width - v * LANES);
      if (left == LANES) {
        store(out + i * n + v * LANES, gelu(tile[i][v] + load(bias + v * LANES)));
      } else if (left > 0) {
        Floats shift{};
        std::memcpy(&shift, bias + v * LANES, left * sizeof(float));
        const Floats result = gelu(tile[i][v] + shift);
        std::memcpy(out + i * n + v * LANES, &result, left * sizeof(float));
      }
    }
}

// Rows beyond the matrix are packed as zeros, so that the tile needs no edge case; they are not stored.
void multiply_tile(const float* a, const float* panel, const float* bias, float* out, int64_t n, int64_t k,
                   int64_t rows, int64_t width, std::vector<float>& packed) {
  Floats tile[TILE_M][TILE_N] = {};
  if (PACK_A || rows < TILE_M) {
    packed.resize(k * TILE_M);
    pack_rows(a, rows, k, packed.data());
    accumulate(tile, packed.data(), 1, TILE_M, k, panel);
  } else {
    accumulate(tile, a, k, 1, k, panel);
  }
  finish(tile, bias, out, n, rows, width);
}

}  // namespace

extern "C" void matmul_bias_gelu(const float* a, const float* b, const float* bias, float* out, int64_t m, int64_t n,
                                 int64_t k) {
  const int64_t panels = (n + kWidth - 1) / kWidth, blocks = (m + BLOCK_M - 1) / BLOCK_M;
#pragma omp parallel
  {
    std::vector<float> panel(k * kWidth), packed;
    int64_t packed_panel = -1;
#pragma omp for schedule(static)
    for (int64_t task = 0; task < panels * blocks; ++task) {
      const int64_t column = task / blocks * kWidth, width = std::min(kWidth, n - column);
      if (packed_panel != column) pack_panel(b, n, k, packed_panel = column, panel.data());
      const int64_t first = task % blocks * BLOCK_M, last = std::min(m, first + BLOCK_M);
      for (int64_t row = first; row < last; row += TILE_M)
        multiply_tile(a + row * k, panel.data(), bias + column, out + row * n + column, n, k,
                      std::min<int64_t>(TILE_M, last - row), width, packed);
    }
  }
}

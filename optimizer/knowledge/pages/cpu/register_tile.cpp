// The inner kernel of a float32 matrix product: a register tile of ROWS x (COLUMNS vectors) over packed panels.
#include <cstdint>
#include <cstring>

constexpr int LANES = 8, ROWS = 6, COLUMNS = 2;  // AVX2: 12 accumulators, 2 columns, 2 broadcasts: 16 registers
// AVX-512: LANES 16, ROWS 14, COLUMNS 2 use 28 accumulators of 32 registers.
typedef float Floats __attribute__((vector_size(4 * LANES)));

// sums [ROWS, COLUMNS * LANES] += a (packed [depth, ROWS]) * b (packed [depth, COLUMNS * LANES])
void multiply_panels(const float* a, const float* b, int64_t depth, float* sums) {
  Floats tile[ROWS][COLUMNS];
  std::memcpy(tile, sums, sizeof tile);
  for (int64_t p = 0; p < depth; ++p) {
    Floats right[COLUMNS];
    std::memcpy(right, b + p * COLUMNS * LANES, sizeof right);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < COLUMNS; ++j) tile[i][j] += a[p * ROWS + i] * right[j];  // one broadcast, COLUMNS FMAs
  }
  std::memcpy(sums, tile, sizeof tile);
}

// Pack COLUMNS * LANES columns of b [depth, n] from `column`, zeros beyond the edge, so the tile needs no branches.
void pack_columns(const float* b, int64_t n, int64_t column, int64_t depth, float* panel) {
  constexpr int64_t width = COLUMNS * LANES;
  for (int64_t p = 0; p < depth; ++p)
    for (int64_t j = 0; j < width; ++j) panel[p * width + j] = column + j < n ? b[p * n + column + j] : 0.0f;
}

// --- check ---
#include "../check.h"

int main() {
  const int depth = 333, n = 19;
  const auto a = normal(depth * ROWS, 1), b = normal(depth * n, 2);
  constexpr int width = COLUMNS * LANES;
  std::vector<float> panel(depth * width), sums(ROWS * width, 0.0f);
  pack_columns(b.data(), n, 8, depth, panel.data());
  multiply_panels(a.data(), panel.data(), depth, sums.data());
  std::vector<double> want(ROWS * width);
  for (int i = 0; i < ROWS; ++i)
    for (int j = 0; j < width && 8 + j < n; ++j)
      for (int p = 0; p < depth; ++p) want[i * width + j] += double(a[p * ROWS + i]) * b[p * n + 8 + j];
  return verdict(sums, want, 1e-6);
}

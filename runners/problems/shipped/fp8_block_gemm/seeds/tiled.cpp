// Block-scaled fp8 product for a CPU: fp8 is decoded and scaled once while panels are packed, then a register tile of
// TILE_M rows by TILE_N vectors multiplies float32. Both operands lie with their k dimension outermost, which is just
// the order that the outer products of the tile want.
//
// @tune LANES 8 16 default=8
// @tune TILE_M 2 4 6 8 12 default=4
// @tune TILE_N 1 2 4 default=2
// @tune BLOCK_M 32 64 128 default=32
// @tune BLOCK_K 256 512 1024 default=256
// @tune UNROLL_K 1 2 4 default=1
// @constraint TILE_M * TILE_N + TILE_N < 32
// @flags -O3 -march=native | -O2 -march=native | -O3 -march=native -mprefer-vector-width=512
#include <algorithm>
#include <cmath>
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
#ifndef BLOCK_M  // rows of a that are decoded at a time
#define BLOCK_M 32
#endif
#ifndef BLOCK_K  // extent of k that is decoded at a time; a multiple of 128
#define BLOCK_K 256
#endif
#ifndef UNROLL_K
#define UNROLL_K 1
#endif

namespace {

typedef float Floats __attribute__((vector_size(4 * LANES)));
constexpr int64_t kWidth = TILE_N * LANES;  // divides 128, so that a panel lies in one row of b_scale
constexpr int kUnrollK = UNROLL_K;

// e4m3fnuz: sign, four exponent bits with bias 8, three mantissa bits; no infinities; 0x80 is the only NaN.
float decode(uint8_t bits) {
  if (bits == 0x80) return NAN;
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float magnitude = exponent ? std::ldexp(8.0f + mantissa, exponent - 11) : std::ldexp(mantissa, -10);
  return bits & 0x80 ? -magnitude : magnitude;
}

struct Table {
  float value[256];
  Table() {
    for (int bits = 0; bits < 256; ++bits) value[bits] = decode(static_cast<uint8_t>(bits));
  }
};
const Table table;

inline Floats load(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline void store(float* p, Floats v) { std::memcpy(p, &v, sizeof v); }

inline uint16_t to_bfloat16(float x) {  // round to nearest even
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Columns [column, column + kWidth) of b.T for `depth` values of k from `start`, decoded and scaled.
void pack_panel(const uint8_t* b, const float* b_scale, int64_t n, int64_t column, int64_t start, int64_t depth,
                float* panel) {
  const int64_t width = std::min(kWidth, n - column), scale_rows = (n + 127) / 128;
  for (int64_t p = 0; p < depth; ++p) {
    const float scale = b_scale[column / 128 + (start + p) / 128 * scale_rows];
    const uint8_t* bits = b + (start + p) * n + column;
    for (int64_t j = 0; j < width; ++j) panel[p * kWidth + j] = table.value[bits[j]] * scale;
    for (int64_t j = width; j < kWidth; ++j) panel[p * kWidth + j] = 0.0f;
  }
}

// Rows [row, row + TILE_M) of a, decoded and scaled, the factors of one k side by side.
void pack_rows(const uint8_t* a, const float* a_scale, int64_t m, int64_t row, int64_t start, int64_t depth,
               float* packed) {
  const int64_t rows = std::min<int64_t>(TILE_M, m - row);
  for (int64_t p = 0; p < depth; ++p) {
    const uint8_t* bits = a + (start + p) * m + row;
    const float* scale = a_scale + (start + p) / 128 * m + row;
    for (int64_t i = 0; i < TILE_M; ++i) packed[p * TILE_M + i] = i < rows ? table.value[bits[i]] * scale[i] : 0.0f;
  }
}

// sums [TILE_M, kWidth] += rows * panel
inline void multiply_tile(const float* rows, const float* panel, int64_t depth, float* sums) {
  Floats tile[TILE_M][TILE_N];
  for (int i = 0; i < TILE_M; ++i)
    for (int v = 0; v < TILE_N; ++v) tile[i][v] = load(sums + i * kWidth + v * LANES);
#pragma GCC unroll kUnrollK
  for (int64_t p = 0; p < depth; ++p) {
    Floats columns[TILE_N];
#pragma GCC unroll 8
    for (int v = 0; v < TILE_N; ++v) columns[v] = load(panel + p * kWidth + v * LANES);
#pragma GCC unroll 16
    for (int i = 0; i < TILE_M; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < TILE_N; ++v) tile[i][v] += rows[p * TILE_M + i] * columns[v];
  }
  for (int i = 0; i < TILE_M; ++i)
    for (int v = 0; v < TILE_N; ++v) store(sums + i * kWidth + v * LANES, tile[i][v]);
}

struct Workspace {
  std::vector<float> rows, panel, sums;
};

// out[first:last, :] for one block of rows: b is decoded anew for each block, a once per block.
void multiply_block(const uint8_t* a, const uint8_t* b, const float* a_scale, const float* b_scale, uint16_t* out,
                    int64_t m, int64_t n, int64_t k, int64_t first, int64_t last, Workspace& space) {
  const int64_t tiles = (last - first + TILE_M - 1) / TILE_M, panels = (n + kWidth - 1) / kWidth;
  space.sums.assign(tiles * TILE_M * panels * kWidth, 0.0f);
  for (int64_t start = 0; start < k; start += BLOCK_K) {
    const int64_t depth = std::min<int64_t>(BLOCK_K, k - start);
    for (int64_t t = 0; t < tiles; ++t)
      pack_rows(a, a_scale, m, first + t * TILE_M, start, depth, space.rows.data() + t * TILE_M * BLOCK_K);
    for (int64_t panel = 0; panel < panels; ++panel) {
      pack_panel(b, b_scale, n, panel * kWidth, start, depth, space.panel.data());
      for (int64_t t = 0; t < tiles; ++t)
        multiply_tile(space.rows.data() + t * TILE_M * BLOCK_K, space.panel.data(), depth,
                      space.sums.data() + (panel * tiles + t) * TILE_M * kWidth);
    }
  }
  for (int64_t row = first; row < last; ++row)
    for (int64_t col = 0; col < n; ++col) {
      const int64_t t = (row - first) / TILE_M, i = (row - first) % TILE_M;
      const float* sums = space.sums.data() + ((col / kWidth * tiles + t) * TILE_M + i) * kWidth;
      out[row * n + col] = to_bfloat16(sums[col % kWidth]);
    }
}

}  // namespace

// a [m, k], b [n, k], a_scale [m, k/128], b_scale [n/128, k/128]: column-major. out [m, n]: row-major.
extern "C" void fp8_block_gemm(const uint8_t* a, const uint8_t* b, const float* a_scale, const float* b_scale,
                               uint16_t* out, int64_t m, int64_t n, int64_t k) {
  const int64_t blocks = (m + BLOCK_M - 1) / BLOCK_M;
#pragma omp parallel
  {
    Workspace space;
    space.rows.resize((BLOCK_M + TILE_M) * BLOCK_K);
    space.panel.resize(BLOCK_K * kWidth);
#pragma omp for schedule(static)
    for (int64_t block = 0; block < blocks; ++block)
      multiply_block(a, b, a_scale, b_scale, out, m, n, k, block * BLOCK_M, std::min(m, (block + 1) * BLOCK_M), space);
  }
}

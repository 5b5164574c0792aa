// Residual addition and layer normalisation on the compiler's generic vectors (AVX2, AVX-512, NEON alike).
//
// Sums run over deviations from the row's first element: with a mean far from zero, neither the mean nor
// E[d^2] - E[d]^2 then cancels (Chan, Golub, LeVeque 1983).
// TWO_PASS 1: the mean first, then squared deviations from it, read back from cache. TWO_PASS 0: both at once.
// STREAM 1 writes `out` around the caches; 2 writes `summed` so too and keeps the row in a buffer of the thread.
//
// @tune LANES 8 16 32 default=8
// @tune UNROLL 1 2 4 8 default=1
// @tune TWO_PASS 0 1 default=1
// @tune STREAM 0 1 2 default=0
// @tune PREFETCH_ROWS 0 1 2 default=0
// @tune ROWS_PER_TASK 1 4 16 default=1
// @constraint LANES * UNROLL <= 64
// @flags -O3 -march=native | -O2 -march=native | -O3 -march=native -mprefer-vector-width=512
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#ifndef LANES
#define LANES 8
#endif
#ifndef UNROLL
#define UNROLL 1
#endif
#ifndef TWO_PASS
#define TWO_PASS 1
#endif
#ifndef STREAM
#define STREAM 0
#endif
#ifndef PREFETCH_ROWS  // how many rows ahead the inputs are asked for
#define PREFETCH_ROWS 0
#endif
#ifndef ROWS_PER_TASK
#define ROWS_PER_TASK 1
#endif

namespace {

typedef float Floats __attribute__((vector_size(4 * LANES)));
constexpr int64_t kStep = LANES * UNROLL;

inline Floats load(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline void store(float* p, Floats v) { std::memcpy(p, &v, sizeof v); }

inline void store_around_caches(float* p, Floats v) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof v == 0) {
#if defined(__AVX512F__) && LANES == 16
    __builtin_ia32_movntps512(p, v);
    return;
#elif defined(__AVX__) && LANES == 8
    __builtin_ia32_movntps256(p, v);
    return;
#endif
  }
  store(p, v);
}

inline double total_of(const Floats* parts) {
  double total = 0.0;
  for (int u = 0; u < UNROLL; ++u)
    for (int lane = 0; lane < LANES; ++lane) total += parts[u][lane];
  return total;
}

struct Moments {
  float mean;
  float scale;  // 1 / sqrt(variance + eps)
};

// Sums of squared deviations of a row from `centre`.
inline double squared_deviations(const float* row, int64_t cols, float centre) {
  Floats squares[UNROLL] = {};
  int64_t col = 0;
  for (; col + kStep <= cols; col += kStep)
    for (int u = 0; u < UNROLL; ++u) {
      Floats d = load(row + col + u * LANES) - centre;
      squares[u] += d * d;
    }
  double total = total_of(squares);
  for (; col < cols; ++col) total += (row[col] - centre) * (row[col] - centre);
  return total;
}

// Writes x + residual to `summed` and to `kept` (which may be the same) and measures it.
inline Moments add_and_measure(const float* x, const float* residual, float* summed, float* kept, int64_t cols,
                               float eps) {
  const float shift = x[0] + residual[0];
  Floats sums[UNROLL] = {}, squares[UNROLL] = {};
  int64_t col = 0;
  for (; col + kStep <= cols; col += kStep)
    for (int u = 0; u < UNROLL; ++u) {
      const int64_t at = col + u * LANES;
      Floats s = load(x + at) + load(residual + at);
      store(kept + at, s);
      if (STREAM == 2) store_around_caches(summed + at, s);
      Floats d = s - shift;
      sums[u] += d;
      if (!TWO_PASS) squares[u] += d * d;
    }
  double total = total_of(sums), total_squares = TWO_PASS ? 0.0 : total_of(squares);
  for (; col < cols; ++col) {
    summed[col] = kept[col] = x[col] + residual[col];
    const float d = kept[col] - shift;
    total += d;
    if (!TWO_PASS) total_squares += d * d;
  }
  const double mean = total / cols;  // of the shifted row
  const float centre = static_cast<float>(mean + shift);
  if (TWO_PASS) total_squares = squared_deviations(kept, cols, centre);
  const double off = TWO_PASS ? mean + shift - centre : mean;
  const double variance = std::fmax(total_squares / cols - off * off, 0.0);
  return {centre, static_cast<float>(1.0 / std::sqrt(variance + eps))};
}

inline void normalise(const float* row, const float* weight, const float* bias, float* out, int64_t cols,
                      Moments moments) {
  int64_t col = 0;
  for (; col + LANES <= cols; col += LANES) {
    Floats n = (load(row + col) - moments.mean) * moments.scale;
    n = n * load(weight + col) + load(bias + col);
    if (STREAM)
      store_around_caches(out + col, n);
    else
      store(out + col, n);
  }
  for (; col < cols; ++col) out[col] = (row[col] - moments.mean) * moments.scale * weight[col] + bias[col];
}

inline void prefetch(const float* row, int64_t cols) {
  for (int64_t col = 0; col < cols; col += 16) __builtin_prefetch(row + col, 0, 2);
}

}  // namespace

extern "C" void layernorm_residual(const float* x, const float* residual, const float* weight, const float* bias,
                                   float* summed, float* out, int64_t rows, int64_t cols, float eps) {
#pragma omp parallel
  {
    std::vector<float> buffer(STREAM == 2 ? cols : 0);
#pragma omp for schedule(static, ROWS_PER_TASK)
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t start = row * cols;
      if (PREFETCH_ROWS && row + PREFETCH_ROWS < rows) {
        prefetch(x + start + PREFETCH_ROWS * cols, cols);
        prefetch(residual + start + PREFETCH_ROWS * cols, cols);
      }
      float* kept = STREAM == 2 ? buffer.data() : summed + start;
      const Moments moments = add_and_measure(x + start, residual + start, summed + start, kept, cols, eps);
      normalise(kept, weight, bias, out + start, cols, moments);
    }
  }
}

// Row-wise softmax with an own vector exponential, on the compiler's generic vectors (AVX2, AVX-512, NEON alike).
//
// The exponential dominates: 2^n * p(f) with n = round(x log2 e) and a polynomial for 2^f on [-1/2, 1/2]. Relative
// error of the polynomial (DEGREE 4, 5, 6): 3e-6, 1e-7, 2e-9. Not for -ffast-math, which cancels the rounding.
//
// @tune LANES 8 16 32 default=8
// @tune UNROLL 1 2 4 default=1
// @tune DEGREE 4 5 6 default=6
// @tune RECOMPUTE 0 1 default=0
// @tune NONTEMPORAL 0 1 default=0
// @tune ROWS_PER_TASK 1 4 16 64 256 default=64
// @constraint LANES * UNROLL <= 64
// @constraint NONTEMPORAL <= RECOMPUTE
// @flags -O3 -march=native | -O2 -march=native | -O3 -march=native -mprefer-vector-width=512 | -O3 -march=native -funroll-loops
#include <cstdint>
#include <cstring>

#ifndef LANES
#define LANES 8
#endif
#ifndef UNROLL
#define UNROLL 1
#endif
#ifndef DEGREE
#define DEGREE 6
#endif
#ifndef RECOMPUTE  // 1: the last pass computes exp again instead of reading it back from `out`
#define RECOMPUTE 0
#endif
#ifndef NONTEMPORAL  // 1: the last pass writes around the caches
#define NONTEMPORAL 0
#endif
#ifndef ROWS_PER_TASK
#define ROWS_PER_TASK 64
#endif

namespace {

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
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

// e^x for x <= 0. Below -87 the result is about 1e-38 instead of a denormal.
inline Floats exp_of(Floats x) {
  const Floats lowest = Floats{} - 87.0f;
  x = x < lowest ? lowest : x;
  Floats t = x * 1.44269504f;
  const Floats magic = Floats{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest integer
  Floats shifted = t + magic;
  Floats n = shifted - magic;
  Floats f = x * 1.44269504f - n;
#if DEGREE == 4
  Floats p = Floats{} + 9.58285317e-03f;
  p = p * f + 5.59064250e-02f;
  p = p * f + 2.40240986e-01f;
  p = p * f + 6.93124193e-01f;
#elif DEGREE == 5
  Floats p = Floats{} + 1.32647272e-03f;
  p = p * f + 9.67151269e-03f;
  p = p * f + 5.55073374e-02f;
  p = p * f + 2.40222421e-01f;
  p = p * f + 6.93146978e-01f;
#else
  Floats p = Floats{} + 1.53533620e-04f;
  p = p * f + 1.33988745e-03f;
  p = p * f + 9.61843736e-03f;
  p = p * f + 5.55033247e-02f;
  p = p * f + 2.40226479e-01f;
  p = p * f + 6.93147203e-01f;
#endif
  p = p * f + 1.0f;
  return reinterpret_cast<Floats>(reinterpret_cast<Ints>(p) + (reinterpret_cast<Ints>(shifted) << 23));
}

inline float maximum_of(const float* in, int64_t cols) {
  float maximum = in[0];
  int64_t col = 0;
  if (cols >= kStep) {
    Floats best[UNROLL];
    for (int u = 0; u < UNROLL; ++u) best[u] = load(in + u * LANES);
    for (col = kStep; col + kStep <= cols; col += kStep)
      for (int u = 0; u < UNROLL; ++u) {
        Floats v = load(in + col + u * LANES);
        best[u] = v > best[u] ? v : best[u];
      }
    for (int u = 1; u < UNROLL; ++u) best[0] = best[u] > best[0] ? best[u] : best[0];
    for (int lane = 0; lane < LANES; ++lane) maximum = best[0][lane] > maximum ? best[0][lane] : maximum;
  }
  for (; col < cols; ++col) maximum = in[col] > maximum ? in[col] : maximum;
  return maximum;
}

inline float exp_of_one(float x) { return exp_of(Floats{} + x)[0]; }

inline float sum_of_exponentials(const float* in, float* result, int64_t cols, float maximum) {
  Floats sums[UNROLL] = {};
  int64_t col = 0;
  for (; col + kStep <= cols; col += kStep)
    for (int u = 0; u < UNROLL; ++u) {
      Floats e = exp_of(load(in + col + u * LANES) - maximum);
      sums[u] += e;
      if (!RECOMPUTE) store(result + col + u * LANES, e);
    }
  float sum = 0.0f;
  for (int u = 0; u < UNROLL; ++u)
    for (int lane = 0; lane < LANES; ++lane) sum += sums[u][lane];
  for (; col < cols; ++col) {
    float e = exp_of_one(in[col] - maximum);
    sum += e;
    if (!RECOMPUTE) result[col] = e;
  }
  return sum;
}

inline void scale(const float* in, float* result, int64_t cols, float maximum, float factor) {
  int64_t col = 0;
  for (; col + LANES <= cols; col += LANES) {
    Floats e = RECOMPUTE ? exp_of(load(in + col) - maximum) : load(result + col);
    if (NONTEMPORAL)
      store_around_caches(result + col, e * factor);
    else
      store(result + col, e * factor);
  }
  for (; col < cols; ++col) result[col] = (RECOMPUTE ? exp_of_one(in[col] - maximum) : result[col]) * factor;
}

}  // namespace

extern "C" void softmax_rows(const float* x, float* out, int64_t rows, int64_t cols) {
#pragma omp parallel for schedule(static, ROWS_PER_TASK)
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = x + row * cols;
    float* result = out + row * cols;
    const float maximum = maximum_of(in, cols);
    const float sum = sum_of_exponentials(in, result, cols, maximum);
    scale(in, result, cols, maximum, 1.0f / sum);
  }
}

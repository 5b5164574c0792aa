// A row's maximum and sum of exponentials with AVX-512: masked tails, several accumulators, no scalar loop.
#include <immintrin.h>
#include <cstdint>

__attribute__((target("avx512f"))) float row_sum(const float* x, int64_t count) {
  __m512 sums[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
  int64_t at = 0;
  for (; at + 64 <= count; at += 64)  // four chains: an add takes 3 to 4 cycles, two may start in each
    for (int i = 0; i < 4; ++i) sums[i] = _mm512_add_ps(sums[i], _mm512_loadu_ps(x + at + 16 * i));
  for (; at < count; at += 16) {
    const int64_t left = count - at;
    const __mmask16 inside = left >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << left) - 1);
    sums[0] = _mm512_add_ps(sums[0], _mm512_maskz_loadu_ps(inside, x + at));  // masked lanes read nothing, fault never
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3])));
}

__attribute__((target("avx512f"))) float row_maximum(const float* x, int64_t count) {
  __m512 top = _mm512_set1_ps(-__builtin_inff());
  for (int64_t at = 0; at < count; at += 16) {
    const int64_t left = count - at;
    const __mmask16 inside = left >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << left) - 1);
    top = _mm512_mask_max_ps(top, inside, top, _mm512_maskz_loadu_ps(inside, x + at));
  }
  return _mm512_reduce_max_ps(top);
}

// --- check ---
#include <algorithm>
#include "../check.h"

int main() {
  if (!__builtin_cpu_supports("avx512f")) return 77;
  const auto x = normal(1003, 1);
  double sum = 0;
  for (float value : x) sum += value;
  const std::vector<float> got{row_sum(x.data(), 1003), row_maximum(x.data(), 1003), row_sum(x.data(), 5)};
  const std::vector<double> want{sum, *std::max_element(x.begin(), x.end()), double(x[0]) + x[1] + x[2] + x[3] + x[4]};
  return verdict(got, want, 1e-5);
}

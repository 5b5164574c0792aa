// bf16 dot products on AVX-512: VDPBF16PS adds two products of neighbours along k into each float32 lane.
#include <immintrin.h>
#include <cstdint>
#include <cstring>

// c [16 columns] += sum over k of a[k] * b[k, column]; b packed as pairs along k: [k / 2, 16 columns, 2].
__attribute__((target("avx512f,avx512bf16"))) void row_times_panel(const uint16_t* a, const uint16_t* b, int64_t k,
                                                                   float* c) {
  __m512 even = _mm512_loadu_ps(c), odd = _mm512_setzero_ps();
  for (int64_t p = 0; p + 4 <= k; p += 4) {  // k a multiple of 4; in a real tile: several rows of a for each load of b
    int32_t first, second;
    std::memcpy(&first, a + p, 4);
    std::memcpy(&second, a + p + 2, 4);
    even = _mm512_dpbf16_ps(even, (__m512bh)_mm512_set1_epi32(first), (__m512bh)_mm512_loadu_si512(b + p * 16));
    odd = _mm512_dpbf16_ps(odd, (__m512bh)_mm512_set1_epi32(second), (__m512bh)_mm512_loadu_si512(b + p * 16 + 32));
  }
  _mm512_storeu_ps(c, _mm512_add_ps(even, odd));
}

// --- check ---
#include "../check.h"

uint16_t to_bfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float from_bfloat16(uint16_t bits) {
  const uint32_t wide = uint32_t(bits) << 16;
  float x;
  std::memcpy(&x, &wide, 4);
  return x;
}

int main() {
  if (!__builtin_cpu_supports("avx512bf16")) return 77;
  const int k = 512;
  std::vector<uint16_t> a, b(k * 16), packed(k * 16);
  for (float x : normal(k, 1)) a.push_back(to_bfloat16(x));
  const auto values = normal(k * 16, 2);
  for (int p = 0; p < k; ++p)
    for (int j = 0; j < 16; ++j) {
      b[p * 16 + j] = to_bfloat16(values[p * 16 + j]);
      packed[(p / 2 * 16 + j) * 2 + p % 2] = b[p * 16 + j];
    }
  std::vector<float> c(16, 0.0f);
  row_times_panel(a.data(), packed.data(), k, c.data());
  std::vector<double> want(16);
  for (int j = 0; j < 16; ++j)
    for (int p = 0; p < k; ++p) want[j] += double(from_bfloat16(a[p])) * from_bfloat16(b[p * 16 + j]);
  return verdict(c, want, 1e-5);
}

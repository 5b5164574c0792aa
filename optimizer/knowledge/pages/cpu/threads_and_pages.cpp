// Copy and scale in threads: one parallel region, pieces of whole cache lines, and stores that can bypass the cache.
#include <immintrin.h>
#include <algorithm>
#include <cstdint>

// `streaming` where the output exceeds the last-level cache and nobody reads it soon. out is aligned to 64 bytes.
__attribute__((target("avx2"))) void scaled_copy(const float* x, float* out, int64_t count, float factor, bool streaming) {
  const __m256 scale = _mm256_set1_ps(factor);
  constexpr int64_t PIECE = 1 << 14;  // 64 KiB: worth a thread's while, small enough to balance, no shared lines
#pragma omp parallel for schedule(static)
  for (int64_t start = 0; start < count; start += PIECE) {
    const int64_t end = std::min(count, start + PIECE);
    int64_t at = start;
    if (streaming)
      for (; at + 8 <= end; at += 8) _mm256_stream_ps(out + at, _mm256_mul_ps(_mm256_loadu_ps(x + at), scale));
    for (; at < end; ++at) out[at] = x[at] * factor;
    if (streaming) _mm_sfence();  // streaming stores are weakly ordered
  }
}

// --- check ---
#include "../check.h"

int main() {
  const int64_t count = 100007;
  const auto x = normal(count, 1);
  auto* out = static_cast<float*>(std::aligned_alloc(64, 400064));
  std::vector<double> want(count);
  for (int64_t i = 0; i < count; ++i) want[i] = double(x[i]) * 3;
  int failed = 0;
  for (const bool streaming : {false, true}) {
    std::fill(out, out + count, 0.0f);
    scaled_copy(x.data(), out, count, 3.0f, streaming);
    failed |= verdict(std::vector<float>(out, out + count), want, 1e-6);
  }
  std::free(out);
  return failed;
}

// Product with 4-bit weights: a row of weights is unpacked once and multiplied with all rows of x.
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

float widened(uint16_t bits) {
  const uint32_t wide = uint32_t(bits) << 16;
  float x;
  std::memcpy(&x, &wide, 4);
  return x;
}

uint16_t to_bfloat16(float x) {  // round to nearest even
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

// x [m, k], packed [n, k/8], scales [n, k/128], out [m, n]: row-major.
extern "C" void w4a16_gemm(const uint16_t* x, const int32_t* packed, const uint16_t* scales, uint16_t* out, int64_t m,
                           int64_t n, int64_t k) {
  std::vector<float> rows(m * k), weights(k);
  for (int64_t i = 0; i < m * k; ++i) rows[i] = widened(x[i]);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t p = 0; p < k; ++p) {
      const uint32_t word = static_cast<uint32_t>(packed[j * (k / 8) + p / 8]);
      const int nibble = word >> (4 * (p % 8)) & 15;
      weights[p] = float(nibble - 8) * widened(scales[j * (k / 128) + p / 128]);
    }
    for (int64_t i = 0; i < m; ++i) {
      float sum = 0.0f;
      for (int64_t p = 0; p < k; ++p) sum += rows[i * k + p] * weights[p];
      out[i * n + j] = to_bfloat16(sum);
    }
  }
}

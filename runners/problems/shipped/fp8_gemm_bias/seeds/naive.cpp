// fp8 product with row scales and bias: both factors decoded once through a table, then one dot product an output.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

// e4m3fn: sign, four exponent bits with bias 7, three mantissa bits; 0x7f and 0xff are NaN.
float decode(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  if (exponent == 15 && mantissa == 7) return NAN;
  const float magnitude = exponent ? std::ldexp(8.0f + mantissa, exponent - 10) : std::ldexp(float(mantissa), -9);
  return bits & 0x80 ? -magnitude : magnitude;
}

struct Table {
  float value[256];
  Table() {
    for (int bits = 0; bits < 256; ++bits) value[bits] = decode(static_cast<uint8_t>(bits));
  }
};
const Table table;

std::vector<float> decoded(const uint8_t* values, int64_t count) {
  std::vector<float> wide(count);
  for (int64_t i = 0; i < count; ++i) wide[i] = table.value[values[i]];
  return wide;
}

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

// a [m, k], b [n, k] fp8, out [m, n] bfloat16: row-major.
extern "C" void fp8_gemm_bias(const uint8_t* a, const uint8_t* b, const float* a_scale, const float* b_scale,
                              const uint16_t* bias, uint16_t* out, int64_t m, int64_t n, int64_t k) {
  const std::vector<float> left = decoded(a, m * k), right = decoded(b, n * k);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0.0f;
      for (int64_t p = 0; p < k; ++p) sum += left[i * k + p] * right[j * k + p];
      out[i * n + j] = to_bfloat16(sum * a_scale[i] * b_scale[j] + widened(bias[j]));
    }
}

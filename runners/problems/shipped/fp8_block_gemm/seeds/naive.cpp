// Block-scaled fp8 product: one dot product per output, block by block, fp8 decoded through a table.
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

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

uint16_t to_bfloat16(float x) {  // round to nearest even
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

// a [m, k], b [n, k], a_scale [m, k/128], b_scale [n/128, k/128]: column-major. out [m, n]: row-major.
extern "C" void fp8_block_gemm(const uint8_t* a, const uint8_t* b, const float* a_scale, const float* b_scale,
                               uint16_t* out, int64_t m, int64_t n, int64_t k) {
  const int64_t scale_rows = (n + 127) / 128;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float total = 0.0f;
      for (int64_t block = 0; block < k / 128; ++block) {
        float sum = 0.0f;
        for (int64_t p = block * 128; p < (block + 1) * 128; ++p)
          sum += table.value[a[i + p * m]] * table.value[b[j + p * n]];
        total += sum * a_scale[i + block * m] * b_scale[j / 128 + block * scale_rows];
      }
      out[i * n + j] = to_bfloat16(total);
    }
}

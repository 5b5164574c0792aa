// gelu(a @ b.T + bias): both factors widened once, then one dot product an output.
#include <cmath>
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

std::vector<float> widened(const uint16_t* values, int64_t count) {
  std::vector<float> wide(count);
  for (int64_t i = 0; i < count; ++i) wide[i] = widened(values[i]);
  return wide;
}

}  // namespace

// a [m, k], b [n, k], bias [n], out [m, n]: bfloat16, row-major.
extern "C" void bf16_gemm_bias_gelu(const uint16_t* a, const uint16_t* b, const uint16_t* bias, uint16_t* out, int64_t m,
                                    int64_t n, int64_t k) {
  const std::vector<float> left = widened(a, m * k), right = widened(b, n * k);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float x = widened(bias[j]);
      for (int64_t p = 0; p < k; ++p) x += left[i * k + p] * right[j * k + p];
      out[i * n + j] = to_bfloat16(0.5f * x * (1.0f + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x))));
    }
}

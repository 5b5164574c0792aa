// Products of each expert's tokens with its weights: weights widened an expert at a time, one dot product an output.
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

void widen(const uint16_t* values, int64_t count, std::vector<float>& wide) {
  wide.resize(count);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = uint32_t(values[i]) << 16;
    std::memcpy(&wide[i], &bits, 4);
  }
}

uint16_t to_bfloat16(float x) {  // round to nearest even
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

// x [tokens, k], w [experts, n, k], out [tokens, n]: bfloat16, row-major; offsets [experts]: ends of the groups.
extern "C" void grouped_gemm(const uint16_t* x, const uint16_t* w, const int32_t* offsets, uint16_t* out, int64_t tokens,
                             int64_t experts, int64_t n, int64_t k) {
  std::vector<float> rows, weights;
  int64_t begin = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t end = offsets[e];
    if (end > begin) {
      widen(x + begin * k, (end - begin) * k, rows);
      widen(w + e * n * k, n * k, weights);
    }
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < n; ++j) {
        float sum = 0.0f;
        for (int64_t p = 0; p < k; ++p) sum += rows[(i - begin) * k + p] * weights[j * k + p];
        out[i * n + j] = to_bfloat16(sum);
      }
    begin = end;
  }
}

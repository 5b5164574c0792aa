// Causal attention row by row: scores of one query, their softmax, and the weighted sum of the values.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

std::vector<float> widened(const uint16_t* values, int64_t count) {
  std::vector<float> wide(count);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = uint32_t(values[i]) << 16;
    std::memcpy(&wide[i], &bits, 4);
  }
  return wide;
}

uint16_t to_bfloat16(float x) {  // round to nearest even
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// One query against the keys 0 … last; `weights` has room for them, `sums` for dim floats.
void attend(const float* query, const float* keys, const float* values, int64_t last, int64_t dim, float* weights,
            float* sums, uint16_t* out) {
  const float scale = 1.0f / std::sqrt(float(dim));
  float top = -INFINITY, sum = 0.0f;
  for (int64_t j = 0; j <= last; ++j) {
    float score = 0.0f;
    for (int64_t p = 0; p < dim; ++p) score += query[p] * keys[j * dim + p];
    weights[j] = score * scale;
    top = std::max(top, weights[j]);
  }
  std::fill(sums, sums + dim, 0.0f);
  for (int64_t j = 0; j <= last; ++j) {
    const float weight = std::exp(weights[j] - top);
    sum += weight;
    for (int64_t p = 0; p < dim; ++p) sums[p] += weight * values[j * dim + p];
  }
  for (int64_t p = 0; p < dim; ++p) out[p] = to_bfloat16(sums[p] / sum);
}

}  // namespace

// q, out [batch, heads, length, dim], k, v [batch, kv_heads, length, dim]: bfloat16, contiguous.
extern "C" void attention_forward(const uint16_t* q, const uint16_t* k, const uint16_t* v, uint16_t* out, int64_t batch,
                                  int64_t heads, int64_t kv_heads, int64_t length, int64_t dim) {
  const int64_t head = length * dim;
  const std::vector<float> keys = widened(k, batch * kv_heads * head), values = widened(v, batch * kv_heads * head);
#pragma omp parallel for schedule(dynamic)
  for (int64_t h = 0; h < batch * heads; ++h) {
    const std::vector<float> queries = widened(q + h * head, head);
    std::vector<float> weights(length), sums(dim);
    const int64_t shared = (h / heads * kv_heads + h % heads / (heads / kv_heads)) * head;
    for (int64_t i = 0; i < length; ++i)
      attend(&queries[i * dim], &keys[shared], &values[shared], i, dim, weights.data(), sums.data(),
             out + h * head + i * dim);
  }
}

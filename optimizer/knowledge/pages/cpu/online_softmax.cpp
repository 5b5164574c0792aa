// Compute a softmax in two passes over memory instead of three: one pass over blocks finds both maximum and sum.
#include <algorithm>
#include <cmath>
#include <cstdint>

constexpr int64_t BLOCK = 1024;  // 4 KiB: the second look at a block finds it in L1

void softmax_row(const float* x, float* out, int64_t count) {
  float top = -INFINITY, sum = 0.0f;
  for (int64_t start = 0; start < count; start += BLOCK) {
    const int64_t end = std::min(count, start + BLOCK);
    float here = -INFINITY;
    for (int64_t i = start; i < end; ++i) here = std::max(here, x[i]);
    const float higher = std::max(top, here);
    float part = 0.0f;
    for (int64_t i = start; i < end; ++i) part += std::exp(x[i] - higher);
    sum = sum * std::exp(top - higher) + part;  // exp(-inf) = 0 in the first block: one exp a block, not an element
    top = higher;
  }
  const float scale = 1.0f / sum;
  for (int64_t i = 0; i < count; ++i) out[i] = std::exp(x[i] - top) * scale;
}

// --- check ---
#include "../check.h"

int main() {
  const int count = 5003;
  auto x = normal(count, 1);
  for (int i = 0; i < count; ++i) x[i] += 0.02f * i;  // the maximum moves from block to block
  std::vector<float> out(count);
  softmax_row(x.data(), out.data(), count);
  double top = *std::max_element(x.begin(), x.end()), sum = 0;
  std::vector<double> want(count);
  for (int i = 0; i < count; ++i) sum += want[i] = std::exp(x[i] - top);
  for (double& value : want) value /= sum;
  return verdict(out, want, 1e-5);
}

// RMSNorm of float32 rows in one pass over memory: the row stays in the first cache between its two loops.
// @flags -O3 -march=native -ffast-math
// @tune ROWS_PER_TASK 4 16 64 default=16
#include <cmath>
#include <cstdint>

#ifndef ROWS_PER_TASK
#define ROWS_PER_TASK 16
#endif

extern "C" void rms_norm(const float* x, const float* weight, float* out, int64_t batch, int64_t tokens,
                         int64_t width) {
  const int64_t rows = batch * tokens;
#pragma omp parallel for schedule(static, ROWS_PER_TASK)
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = x + row * width;
    float* to = out + row * width;
    float total = 0.0f;
    for (int64_t c = 0; c < width; ++c) total += in[c] * in[c];
    const float scale = 1.0f / std::sqrt(total / width + 1e-6f);
    for (int64_t c = 0; c < width; ++c) to[c] = in[c] * scale * weight[c];
  }
}

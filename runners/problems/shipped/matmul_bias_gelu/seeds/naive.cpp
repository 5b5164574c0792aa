// gelu(a @ b + bias): loops ordered so that the innermost one runs along memory.
#include <cmath>
#include <cstdint>

extern "C" void matmul_bias_gelu(const float* a, const float* b, const float* bias, float* out, int64_t m, int64_t n,
                                 int64_t k) {
  for (int64_t i = 0; i < m; ++i) {
    float* row = out + i * n;
    for (int64_t j = 0; j < n; ++j) row[j] = bias[j];
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < n; ++j) row[j] += a[i * k + p] * b[p * n + j];
    for (int64_t j = 0; j < n; ++j) {
      const float x = row[j];
      row[j] = 0.5f * x * (1.0f + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
    }
  }
}

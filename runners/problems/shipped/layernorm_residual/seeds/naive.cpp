// Residual addition and layer normalisation, the way the definition reads.
#include <cmath>
#include <cstdint>

extern "C" void layernorm_residual(const float* x, const float* residual, const float* weight, const float* bias,
                                   float* summed, float* out, int64_t rows, int64_t cols, float eps) {
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t start = row * cols;
    for (int64_t col = 0; col < cols; ++col) summed[start + col] = x[start + col] + residual[start + col];
    double total = 0.0;
    for (int64_t col = 0; col < cols; ++col) total += summed[start + col];
    const double mean = total / cols;
    double squares = 0.0;
    for (int64_t col = 0; col < cols; ++col) squares += (summed[start + col] - mean) * (summed[start + col] - mean);
    const double scale = 1.0 / std::sqrt(squares / cols + eps);
    for (int64_t col = 0; col < cols; ++col)
      out[start + col] = static_cast<float>((summed[start + col] - mean) * scale) * weight[col] + bias[col];
  }
}

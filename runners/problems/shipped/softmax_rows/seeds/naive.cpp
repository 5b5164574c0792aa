// Row-wise softmax, the way the definition reads: maximum, sum of exponentials, quotient.
#include <cmath>
#include <cstdint>

extern "C" void softmax_rows(const float* x, float* out, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = x + row * cols;
    float* result = out + row * cols;
    float maximum = in[0];
    for (int64_t col = 1; col < cols; ++col) maximum = std::fmax(maximum, in[col]);
    double sum = 0.0;
    for (int64_t col = 0; col < cols; ++col) sum += std::exp(in[col] - maximum);
    for (int64_t col = 0; col < cols; ++col)
      result[col] = std::exp(in[col] - maximum) / static_cast<float>(sum);
  }
}

#include <cmath>
#include <cstdint>

extern "C" void row_softmax(const float* x, float* out, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float top = in[0];
    for (int64_t c = 1; c < cols; ++c) top = std::fmax(top, in[c]);
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += std::exp(double(in[c] - top));
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = std::exp(double(in[c] - top)) / sum;
  }
}

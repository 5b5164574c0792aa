// What the checks below the snippets share: random inputs, device memory, and the comparison with a plain result.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

inline std::vector<float> normal(size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> draw;
  std::vector<float> values(count);
  for (float& value : values) value = draw(engine);
  return values;
}

// Exit code of a check: 0 where the error's norm is at most `limit` of the norm of what is wanted.
template <class Got, class Want>
int verdict(const std::vector<Got>& got, const std::vector<Want>& want, double limit) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double off = double(got[i]) - double(want[i]);
    error += off * off;
    norm += double(want[i]) * double(want[i]);
  }
  const double relative = std::sqrt(error / (norm > 0 ? norm : 1));
  std::printf("relative error %.3g, allowed %.3g\n", relative, limit);
  return relative <= limit ? 0 : 1;  // NaN is not at most anything
}

#ifdef __CUDACC__
#include <cuda_runtime.h>

#define MUST(call)                                                                       \
  do {                                                                                   \
    const cudaError_t answer = (call);                                                   \
    if (answer != cudaSuccess) {                                                         \
      std::printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(answer));        \
      std::exit(2);                                                                      \
    }                                                                                    \
  } while (0)

// Device memory that begins as a copy of a vector.
template <class T>
struct Device {
  T* at = nullptr;
  size_t count;
  explicit Device(const std::vector<T>& values) : count(values.size()) {
    MUST(cudaMalloc(&at, count * sizeof(T)));
    MUST(cudaMemcpy(at, values.data(), count * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Device() { cudaFree(at); }
  Device(const Device&) = delete;
  std::vector<T> back() const {
    std::vector<T> values(count);
    MUST(cudaGetLastError());
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(values.data(), at, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
};

template <class T>
std::vector<T> converted(const std::vector<float>& values) {
  return std::vector<T>(values.begin(), values.end());
}

template <class T>
std::vector<float> widened(const std::vector<T>& values) {
  std::vector<float> wide(values.size());
  for (size_t i = 0; i < values.size(); ++i) wide[i] = float(values[i]);
  return wide;
}

// a [m, k] times b [n, k] transposed, in double.
template <class T>
std::vector<double> product(const std::vector<T>& a, const std::vector<T>& b, int m, int n, int k) {
  std::vector<double> c(size_t(m) * n);
  std::vector<float> left = widened(a), right = widened(b);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int p = 0; p < k; ++p) sum += double(left[size_t(i) * k + p]) * double(right[size_t(j) * k + p]);
      c[size_t(i) * n + j] = sum;
    }
  return c;
}
#endif

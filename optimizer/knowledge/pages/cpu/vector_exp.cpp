// Compute exp of a vector of floats in about a dozen instructions, with 2e-7 relative error, for any x and -infinity.
// With -ffast-math the two parts of ln 2 are merged and the error is 2e-6: compile this with -fno-associative-math.
#include <cstdint>

constexpr int LANES = 8;
typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));

inline Floats exp_of(Floats x) {
  const Floats lowest = Floats{} - 87.3f, highest = Floats{} + 88.3f;  // 2^n stays a normal number
  x = x < lowest ? lowest : x;
  x = x > highest ? highest : x;
  const Floats scaled = x * 1.44269504f;  // log2 e
  // Truncation after adding a half rounds to nearest; adding and subtracting 1.5 * 2^23 would be cancelled by -ffast-math.
  const Ints n = __builtin_convertvector(scaled + (scaled < 0 ? Floats{} - 0.5f : Floats{} + 0.5f), Ints);
  const Floats whole = __builtin_convertvector(n, Floats);
  const Floats r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;  // ln 2 in two parts: |r| <= 0.35
  Floats p = Floats{} + 1.9875691500e-4f;  // Cephes' minimax polynomial
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const Floats value = p * r * r + r + 1.0f;
  return value * (Floats)((n + 127) << 23);  // times 2^n: the exponent's bits
}

// --- check ---
#include "../check.h"

int main() {
  std::vector<float> got;
  std::vector<double> want;
  for (float start = -86.0f; start < 88.0f; start += 0.37f) {
    Floats x;
    for (int i = 0; i < LANES; ++i) x[i] = start + 0.01f * i;
    const Floats y = exp_of(x);
    for (int i = 0; i < LANES; ++i) {
      const double exact = std::exp(double(x[i]));
      if (std::abs(y[i] / exact - 1) > 3e-7) return std::printf("exp(%g) is off by %g\n", x[i], y[i] / exact - 1), 1;
      got.push_back(y[i] / exact);
      want.push_back(1.0);
    }
  }
  const Floats small = exp_of(Floats{} - __builtin_inff());
  return small[0] < 1e-37 ? verdict(got, want, 3e-7) : 1;
}

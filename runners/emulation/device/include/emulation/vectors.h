// The short vectors of HIP and CUDA, float4 and its relatives, with HIP's operators.
#pragma once
#include <emulation/words.h>

namespace emu {

template <class T, unsigned N>
constexpr size_t vector_alignment = N == 3 ? sizeof(T) : sizeof(T) * N > 16 ? 16 : sizeof(T) * N;

template <class T, unsigned N>
struct Members;
template <class T>
struct Members<T, 1> {
  T x;
};
template <class T>
struct Members<T, 2> {
  T x, y;
};
template <class T>
struct Members<T, 3> {
  T x, y, z;
};
template <class T>
struct Members<T, 4> {
  T x, y, z, w;
};

template <class T, unsigned N>
struct alignas(vector_alignment<T, N>) Vector : Members<T, N> {
  using value_type = T;
  Vector() = default;
  template <class... U, class = std::enable_if_t<sizeof...(U) == N && (std::is_convertible_v<U, T> && ...)>>
  constexpr Vector(U... values) : Members<T, N>{static_cast<T>(values)...} {}
  template <class U, unsigned M = N, class = std::enable_if_t<(M > 1) && std::is_arithmetic_v<U>>>
  constexpr explicit Vector(U value) : Members<T, N>{} {
    for (unsigned at = 0; at < N; ++at) (*this)[at] = static_cast<T>(value);
  }
  T& operator[](unsigned at) { return reinterpret_cast<T*>(this)[at]; }
  const T& operator[](unsigned at) const { return reinterpret_cast<const T*>(this)[at]; }
#define EMU_OPERATOR(op)                                                           \
  Vector& operator op##=(const Vector & other) {                                   \
    for (unsigned at = 0; at < N; ++at) (*this)[at] = T((*this)[at] op other[at]); \
    return *this;                                                                  \
  }                                                                                \
  Vector& operator op##=(T other) {                                                \
    for (unsigned at = 0; at < N; ++at) (*this)[at] = T((*this)[at] op other);     \
    return *this;                                                                  \
  }                                                                                \
  friend Vector operator op(Vector one, const Vector & other) {                    \
    one op##= other;                                                               \
    return one;                                                                    \
  }                                                                                \
  friend Vector operator op(Vector one, T other) {                                 \
    one op##= other;                                                               \
    return one;                                                                    \
  }                                                                                \
  friend Vector operator op(T one, const Vector & other) {                         \
    Vector made;                                                                   \
    for (unsigned at = 0; at < N; ++at) made[at] = T(one op other[at]);            \
    return made;                                                                   \
  }
  EMU_OPERATOR(+)
  EMU_OPERATOR(-)
  EMU_OPERATOR(*)
  EMU_OPERATOR(/)
#undef EMU_OPERATOR
  friend Vector operator-(Vector one) {
    for (unsigned at = 0; at < N; ++at) one[at] = T(-one[at]);
    return one;
  }
  friend bool operator==(const Vector& one, const Vector& other) {
    for (unsigned at = 0; at < N; ++at)
      if (!(one[at] == other[at])) return false;
    return true;
  }
  friend bool operator!=(const Vector& one, const Vector& other) { return !(one == other); }
};

}  // namespace emu

#define EMU_VECTORS(name, T)                                                                             \
  using name##1 = emu::Vector<T, 1>;                                                                     \
  using name##2 = emu::Vector<T, 2>;                                                                     \
  using name##3 = emu::Vector<T, 3>;                                                                     \
  using name##4 = emu::Vector<T, 4>;                                                                     \
  EMU_INLINE name##1 make_##name##1(T x) { return name##1(x); }                                          \
  EMU_INLINE name##2 make_##name##2(T x, T y) { return {x, y}; }                                         \
  EMU_INLINE name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                 \
  EMU_INLINE name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VECTORS(char, signed char)
EMU_VECTORS(uchar, unsigned char)
EMU_VECTORS(short, short)
EMU_VECTORS(ushort, unsigned short)
EMU_VECTORS(int, int)
EMU_VECTORS(uint, unsigned)
EMU_VECTORS(long, long)
EMU_VECTORS(ulong, unsigned long)
EMU_VECTORS(longlong, long long)
EMU_VECTORS(ulonglong, unsigned long long)
EMU_VECTORS(float, float)
EMU_VECTORS(double, double)
#undef EMU_VECTORS

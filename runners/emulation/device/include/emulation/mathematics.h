// Functions of device code that the host's C library lacks.
#pragma once
#include <emulation/floats.h>

using std::isfinite;
using std::isinf;
using std::isnan;

EMU_INLINE float __uint_as_float(unsigned value) { return emu::bits<float>(value); }
EMU_INLINE float __int_as_float(int value) { return emu::bits<float>(value); }
EMU_INLINE unsigned __float_as_uint(float value) { return emu::bits<unsigned>(value); }
EMU_INLINE int __float_as_int(float value) { return emu::bits<int>(value); }
EMU_INLINE long long __double_as_longlong(double value) { return emu::bits<long long>(value); }
EMU_INLINE double __longlong_as_double(long long value) { return emu::bits<double>(value); }

#define EMU_PAIR(T)                                         \
  EMU_INLINE T min(T a, T b) { return b < a ? b : a; }      \
  EMU_INLINE T max(T a, T b) { return a < b ? b : a; }
EMU_PAIR(int)
EMU_PAIR(unsigned)
EMU_PAIR(long)
EMU_PAIR(unsigned long)
EMU_PAIR(long long)
EMU_PAIR(unsigned long long)
#undef EMU_PAIR
EMU_INLINE float min(float a, float b) { return std::fmin(a, b); }
EMU_INLINE float max(float a, float b) { return std::fmax(a, b); }
EMU_INLINE double min(double a, double b) { return std::fmin(a, b); }
EMU_INLINE double max(double a, double b) { return std::fmax(a, b); }
// Mixed types follow the usual arithmetic conversions.
template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B> && !std::is_same_v<A, B>>>
EMU_INLINE std::common_type_t<A, B> min(A a, B b) {
  using C = std::common_type_t<A, B>;
  return C(b) < C(a) ? C(b) : C(a);
}
template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B> && !std::is_same_v<A, B>>>
EMU_INLINE std::common_type_t<A, B> max(A a, B b) {
  using C = std::common_type_t<A, B>;
  return C(a) < C(b) ? C(b) : C(a);
}

// The C library declares functions of these names for itself.
#define __expf emu_fast_expf
#define __exp2f emu_fast_exp2f
#define __exp10f emu_fast_exp10f
#define __logf emu_fast_logf
#define __log2f emu_fast_log2f
#define __log10f emu_fast_log10f
#define __sinf emu_fast_sinf
#define __cosf emu_fast_cosf
#define __tanf emu_fast_tanf
#define __powf emu_fast_powf
#define __sincosf emu_fast_sincosf

#define EMU_UNARY(name, result) \
  EMU_INLINE float name(float x) { return result; }
EMU_UNARY(emu_fast_expf, std::exp(x))
EMU_UNARY(emu_fast_exp2f, std::exp2(x))
EMU_UNARY(emu_fast_exp10f, std::pow(10.0f, x))
EMU_UNARY(emu_fast_logf, std::log(x))
EMU_UNARY(emu_fast_log2f, std::log2(x))
EMU_UNARY(emu_fast_log10f, std::log10(x))
EMU_UNARY(emu_fast_sinf, std::sin(x))
EMU_UNARY(emu_fast_cosf, std::cos(x))
EMU_UNARY(emu_fast_tanf, std::tan(x))
EMU_UNARY(rsqrtf, 1.0f / std::sqrt(x))
EMU_UNARY(__frsqrt_rn, 1.0f / std::sqrt(x))
EMU_UNARY(__fsqrt_rn, std::sqrt(x))
EMU_UNARY(__frcp_rn, 1.0f / x)
EMU_UNARY(__saturatef, std::fmin(std::fmax(x, 0.0f), 1.0f))
EMU_UNARY(normcdff, 0.5f * std::erfc(-x * 0.70710678f))
EMU_UNARY(__builtin_amdgcn_rcpf, 1.0f / x)
EMU_UNARY(__builtin_amdgcn_rsqf, 1.0f / std::sqrt(x))
EMU_UNARY(__builtin_amdgcn_sqrtf, std::sqrt(x))
EMU_UNARY(__builtin_amdgcn_exp2f, std::exp2(x))
EMU_UNARY(__builtin_amdgcn_logf, std::log2(x))
EMU_UNARY(__builtin_amdgcn_fractf, x - std::floor(x))
#undef EMU_UNARY
EMU_INLINE double rsqrt(double x) { return 1.0 / std::sqrt(x); }
EMU_INLINE float __builtin_amdgcn_fmed3f(float a, float b, float c) {
  return std::fmax(std::fmin(a, b), std::fmin(std::fmax(a, b), c));
}
EMU_INLINE float __fdividef(float a, float b) { return a / b; }
EMU_INLINE float __fdiv_rn(float a, float b) { return a / b; }
EMU_INLINE float __fadd_rn(float a, float b) { return a + b; }
EMU_INLINE float __fsub_rn(float a, float b) { return a - b; }
EMU_INLINE float __fmul_rn(float a, float b) { return a * b; }
EMU_INLINE float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
EMU_INLINE float emu_fast_powf(float a, float b) { return std::pow(a, b); }
EMU_INLINE void emu_fast_sincosf(float x, float* sine, float* cosine) { *sine = std::sin(x), *cosine = std::cos(x); }
#define EMU_CONVERT(name, T, result) \
  EMU_INLINE T name(float x) { return T(result); }
EMU_CONVERT(__float2int_rn, int, std::nearbyint(x))
EMU_CONVERT(__float2int_rz, int, std::trunc(x))
EMU_CONVERT(__float2int_rd, int, std::floor(x))
EMU_CONVERT(__float2int_ru, int, std::ceil(x))
EMU_CONVERT(__float2uint_rn, unsigned, std::nearbyint(x))
EMU_CONVERT(__float2uint_rz, unsigned, std::trunc(x))
#undef EMU_CONVERT
EMU_INLINE float __int2float_rn(int x) { return float(x); }
EMU_INLINE float __uint2float_rn(unsigned x) { return float(x); }

EMU_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
EMU_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
EMU_INLINE int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
EMU_INLINE int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
EMU_INLINE int __ffs(int x) { return __builtin_ffs(x); }
EMU_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
EMU_INLINE unsigned __brev(unsigned x) { return __builtin_bitreverse32(x); }
EMU_INLINE unsigned long long __brevll(unsigned long long x) { return __builtin_bitreverse64(x); }
EMU_INLINE int __mul24(int a, int b) { return int(unsigned(a << 8 >> 8) * unsigned(b << 8 >> 8)); }
EMU_INLINE unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
EMU_INLINE int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
EMU_INLINE unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
EMU_INLINE unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned made = 0;
  for (int at = 0; at < 4; ++at) made |= unsigned(both >> 8 * (selector >> 4 * at & 7) & 0xff) << 8 * at;
  return made;
}
EMU_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}
EMU_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((unsigned long long)high << 32 | low) >> (shift & 31));
}
// v_perm_b32: bytes 0 to 3 are the second operand's, 4 to 7 the first's, 12 is zero, 13 and above ones.
EMU_INLINE unsigned __builtin_amdgcn_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long both = (unsigned long long)a << 32 | b;
  unsigned made = 0;
  for (int at = 0; at < 4; ++at) {
    const unsigned which = selector >> 8 * at & 0xff;
    if (which >= 8 && which < 12) emu::emu_uncovered("the sign selectors of v_perm_b32");
    const unsigned byte = which < 8 ? unsigned(both >> 8 * which & 0xff) : which == 12 ? 0 : 0xff;
    made |= byte << 8 * at;
  }
  return made;
}
EMU_INLINE unsigned __builtin_amdgcn_alignbit(unsigned high, unsigned low, unsigned shift) {
  return __funnelshift_r(low, high, shift);
}
EMU_INLINE unsigned __builtin_amdgcn_alignbyte(unsigned high, unsigned low, unsigned shift) {
  return __funnelshift_r(low, high, 8 * (shift & 3));
}
EMU_INLINE unsigned __builtin_amdgcn_ubfe(unsigned x, unsigned at, unsigned width) {
  return width == 0 ? 0 : (x >> (at & 31)) & (width >= 32 ? ~0u : (1u << width) - 1);
}
EMU_INLINE int __builtin_amdgcn_sbfe(int x, unsigned at, unsigned width) {
  return width == 0 ? 0 : int(unsigned(x) >> (at & 31) << (32 - width)) >> (32 - width);
}
EMU_INLINE int __builtin_amdgcn_sdot4(int a, int b, int c, bool) {
  for (int at = 0; at < 4; ++at) c += int(int8_t(a >> 8 * at)) * int(int8_t(b >> 8 * at));
  return c;
}
EMU_INLINE int __dp4a(int a, int b, int c) { return __builtin_amdgcn_sdot4(a, b, c, false); }
EMU_INLINE float __builtin_amdgcn_fdot2(emu::half2_t a, emu::half2_t b, float c, bool) {
  return float(double(a[0]) * double(b[0]) + double(a[1]) * double(b[1]) + double(c));
}

template <class T>
EMU_INLINE T __ldg(const T* at) { return *at; }
template <class T>
EMU_INLINE T __ldcg(const T* at) { return *at; }
template <class T>
EMU_INLINE T __ldcs(const T* at) { return *at; }
template <class T>
EMU_INLINE void __stcs(T* at, T value) { *at = value; }
template <class T>
EMU_INLINE void __stcg(T* at, T value) { *at = value; }
EMU_INLINE void __trap() { emu::emu_fault("fault", "the kernel stopped itself (trap)"); }
EMU_INLINE long long clock64() { return 0; }
EMU_INLINE long long wall_clock64() { return 0; }
#define __builtin_readcyclecounter() 0ull
#define __builtin_amdgcn_s_memtime() 0ull
#define __builtin_amdgcn_s_memrealtime() 0ull

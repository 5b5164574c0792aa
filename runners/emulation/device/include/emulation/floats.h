// Numbers of 8 and 16 bits: half, bfloat16, and fp8 as fnuz (gfx942) or OCP (gfx950, NVIDIA).
#pragma once
#include <emulation/vectors.h>

namespace emu {

template <class To, class From>
EMU_INLINE To bits(const From& value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

EMU_INLINE float from_bfloat16(uint16_t bits16) { return bits<float>(uint32_t(bits16) << 16); }
EMU_INLINE uint16_t to_bfloat16(float value) {
  const uint32_t all = bits<uint32_t>(value);
  if ((all & 0x7fffffff) > 0x7f800000) return uint16_t(all >> 16 | 0x40);
  return uint16_t((all + 0x7fff + (all >> 16 & 1)) >> 16);
}

enum class Fp8 { E4M3, E5M2 };

// The formats of this target. In fnuz the bias is one more, 0x80 the only NaN, and there is neither -0 nor infinity.
#ifdef EMU_FP8_OCP
constexpr bool FNUZ = false;
#else
constexpr bool FNUZ = true;
#endif

EMU_QUIET inline float decode_fp8(uint8_t code, Fp8 format, bool fnuz = FNUZ) {
  const int mantissa_bits = format == Fp8::E4M3 ? 3 : 2;
  const int bias = (format == Fp8::E4M3 ? 7 : 15) + fnuz;
  const int exponent = (code & 0x7f) >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
  const float sign = code & 0x80 ? -1.0f : 1.0f, nan = bits<float>(0x7fc00000u);
  if (fnuz && code == 0x80) return nan;
  if (!fnuz && format == Fp8::E4M3 && (code & 0x7f) == 0x7f) return nan;
  if (!fnuz && format == Fp8::E5M2 && exponent == 31) return mantissa ? nan : sign * bits<float>(0x7f800000u);
  if (exponent == 0) return sign * std::ldexp(float(mantissa), 1 - bias - mantissa_bits);
  return sign * std::ldexp(float(mantissa | 1 << mantissa_bits), exponent - bias - mantissa_bits);
}

// Round to nearest even. What is too large becomes NaN (fnuz, E4M3) or infinity, or the largest number if `saturate`.
EMU_QUIET inline uint8_t encode_fp8(float value, Fp8 format, bool saturate = false, bool fnuz = FNUZ) {
  const int mantissa_bits = format == Fp8::E4M3 ? 3 : 2;
  const int bias = (format == Fp8::E4M3 ? 7 : 15) + fnuz;
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const uint8_t nan = fnuz ? 0x80 : 0x7f;
  if (std::isnan(value)) return nan;
  const uint8_t largest = fnuz ? 0x7f : format == Fp8::E4M3 ? 0x7e : 0x7b;
  const uint8_t beyond = saturate ? sign | largest : fnuz ? 0x80 : format == Fp8::E4M3 ? sign | 0x7f : sign | 0x7c;
  const float magnitude = std::fabs(value);
  if (std::isinf(value)) return beyond;
  int exponent;
  std::frexp(magnitude, &exponent);
  // The unit in the last place, no smaller than that of subnormal numbers.
  const int unit = std::max(exponent - 1, 1 - bias) - mantissa_bits;
  const auto units = int64_t(std::nearbyint(std::ldexp(double(magnitude), -unit)));
  if (units == 0) return fnuz ? 0 : sign;
  const int code = units < (1 << mantissa_bits)
                       ? int(units)
                       : int(((unit + mantissa_bits + bias) << mantissa_bits) + units - (1 << mantissa_bits));
  return code > largest ? beyond : uint8_t(sign | code);
}

// A table of all 256 codes, since matrix products decode millions.
struct Fp8Table {
  float values[256];
  EMU_QUIET explicit Fp8Table(Fp8 format) {
    for (int code = 0; code < 256; ++code) values[code] = decode_fp8(uint8_t(code), format);
  }
};
inline const Fp8Table E4M3_VALUES(Fp8::E4M3), E5M2_VALUES(Fp8::E5M2);

template <Fp8 FORMAT, bool IS_FNUZ>
struct Float8 {
  uint8_t __x;
  Float8() = default;
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T> || std::is_same_v<T, _Float16>>>
  explicit Float8(T value) : __x(encode_fp8(float(value), FORMAT, true, IS_FNUZ)) {}
  operator float() const { return decode_fp8(__x, FORMAT, IS_FNUZ); }
};

typedef float float2_t __attribute__((ext_vector_type(2)));
typedef _Float16 half2_t __attribute__((ext_vector_type(2)));

}  // namespace emu

// ---- bfloat16 --------------------------------------------------------------------------------------------------

struct __hip_bfloat16 {
  unsigned short data;
  __hip_bfloat16() = default;
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T> || std::is_same_v<T, _Float16>>>
  __hip_bfloat16(T value) : data(emu::to_bfloat16(float(value))) {}
  operator float() const { return emu::from_bfloat16(data); }
  __hip_bfloat16& operator+=(float other) { return *this = __hip_bfloat16(float(*this) + other); }
  __hip_bfloat16& operator-=(float other) { return *this = __hip_bfloat16(float(*this) - other); }
  __hip_bfloat16& operator*=(float other) { return *this = __hip_bfloat16(float(*this) * other); }
  static __hip_bfloat16 round_to_bfloat16(float value) { return __hip_bfloat16(value); }
};
using hip_bfloat16 = __hip_bfloat16;
using __nv_bfloat16 = __hip_bfloat16;
using nv_bfloat16 = __hip_bfloat16;
struct __hip_bfloat162 {
  __hip_bfloat16 x, y;
};
using __nv_bfloat162 = __hip_bfloat162;
EMU_INLINE float __bfloat162float(__hip_bfloat16 value) { return value; }
EMU_INLINE __hip_bfloat16 __float2bfloat16(float value) { return value; }
EMU_INLINE __hip_bfloat16 __float2bfloat16_rn(float value) { return value; }
EMU_INLINE unsigned short __bfloat16_as_ushort(__hip_bfloat16 value) { return value.data; }
EMU_INLINE __hip_bfloat16 __ushort_as_bfloat16(unsigned short value) { return emu::bits<__hip_bfloat16>(value); }
EMU_INLINE __hip_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
EMU_INLINE __hip_bfloat162 __float22bfloat162_rn(float2 pair) { return {pair.x, pair.y}; }
EMU_INLINE float2 __bfloat1622float2(__hip_bfloat162 pair) { return {float(pair.x), float(pair.y)}; }
EMU_INLINE float __low2float(__hip_bfloat162 pair) { return pair.x; }
EMU_INLINE float __high2float(__hip_bfloat162 pair) { return pair.y; }

// ---- half ------------------------------------------------------------------------------------------------------

using __half = _Float16;
using half = _Float16;
using __half_raw = _Float16;
struct __half2 {
  _Float16 x, y;
  friend __half2 operator+(__half2 a, __half2 b) { return {_Float16(a.x + b.x), _Float16(a.y + b.y)}; }
  friend __half2 operator-(__half2 a, __half2 b) { return {_Float16(a.x - b.x), _Float16(a.y - b.y)}; }
  friend __half2 operator*(__half2 a, __half2 b) { return {_Float16(a.x * b.x), _Float16(a.y * b.y)}; }
};
using half2 = __half2;
EMU_INLINE float __half2float(_Float16 value) { return float(value); }
EMU_INLINE _Float16 __float2half(float value) { return _Float16(value); }
EMU_INLINE _Float16 __float2half_rn(float value) { return _Float16(value); }
EMU_INLINE unsigned short __half_as_ushort(_Float16 value) { return emu::bits<unsigned short>(value); }
EMU_INLINE _Float16 __ushort_as_half(unsigned short value) { return emu::bits<_Float16>(value); }
EMU_INLINE __half2 __halves2half2(_Float16 x, _Float16 y) { return {x, y}; }
EMU_INLINE __half2 __half2half2(_Float16 x) { return {x, x}; }
EMU_INLINE __half2 __float2half2_rn(float x) { return {_Float16(x), _Float16(x)}; }
EMU_INLINE __half2 __floats2half2_rn(float x, float y) { return {_Float16(x), _Float16(y)}; }
EMU_INLINE __half2 __float22half2_rn(float2 pair) { return {_Float16(pair.x), _Float16(pair.y)}; }
EMU_INLINE float2 __half22float2(__half2 pair) { return {float(pair.x), float(pair.y)}; }
EMU_INLINE float __low2float(__half2 pair) { return float(pair.x); }
EMU_INLINE float __high2float(__half2 pair) { return float(pair.y); }
EMU_INLINE _Float16 __low2half(__half2 pair) { return pair.x; }
EMU_INLINE _Float16 __high2half(__half2 pair) { return pair.y; }
EMU_INLINE _Float16 __hadd(_Float16 a, _Float16 b) { return _Float16(a + b); }
EMU_INLINE _Float16 __hsub(_Float16 a, _Float16 b) { return _Float16(a - b); }
EMU_INLINE _Float16 __hmul(_Float16 a, _Float16 b) { return _Float16(a * b); }
EMU_INLINE _Float16 __hdiv(_Float16 a, _Float16 b) { return _Float16(a / b); }
EMU_INLINE _Float16 __hfma(_Float16 a, _Float16 b, _Float16 c) { return _Float16(std::fma(double(a), double(b), double(c))); }
EMU_INLINE _Float16 __hmax(_Float16 a, _Float16 b) { return _Float16(std::fmax(float(a), float(b))); }
EMU_INLINE _Float16 __hmin(_Float16 a, _Float16 b) { return _Float16(std::fmin(float(a), float(b))); }
EMU_INLINE _Float16 hexp(_Float16 a) { return _Float16(std::exp(float(a))); }
EMU_INLINE _Float16 hsqrt(_Float16 a) { return _Float16(std::sqrt(float(a))); }
EMU_INLINE __half2 __hadd2(__half2 a, __half2 b) { return a + b; }
EMU_INLINE __half2 __hmul2(__half2 a, __half2 b) { return a * b; }
EMU_INLINE __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }

// ---- fp8 -------------------------------------------------------------------------------------------------------

using __hip_fp8_e4m3_fnuz = emu::Float8<emu::Fp8::E4M3, true>;
using __hip_fp8_e5m2_fnuz = emu::Float8<emu::Fp8::E5M2, true>;
using __hip_fp8_e4m3 = emu::Float8<emu::Fp8::E4M3, false>;
using __hip_fp8_e5m2 = emu::Float8<emu::Fp8::E5M2, false>;
using __nv_fp8_e4m3 = __hip_fp8_e4m3;
using __nv_fp8_e5m2 = __hip_fp8_e5m2;
using __hip_fp8_storage_t = unsigned char;
using __nv_fp8_storage_t = unsigned char;

EMU_INLINE float __builtin_amdgcn_cvt_f32_fp8(int four, int at) {
  return emu::decode_fp8(uint8_t(four >> 8 * at), emu::Fp8::E4M3);
}
EMU_INLINE float __builtin_amdgcn_cvt_f32_bf8(int four, int at) {
  return emu::decode_fp8(uint8_t(four >> 8 * at), emu::Fp8::E5M2);
}
EMU_INLINE emu::float2_t __builtin_amdgcn_cvt_pk_f32_fp8(int four, bool high) {
  return {__builtin_amdgcn_cvt_f32_fp8(four, 2 * high), __builtin_amdgcn_cvt_f32_fp8(four, 2 * high + 1)};
}
EMU_INLINE emu::float2_t __builtin_amdgcn_cvt_pk_f32_bf8(int four, bool high) {
  return {__builtin_amdgcn_cvt_f32_bf8(four, 2 * high), __builtin_amdgcn_cvt_f32_bf8(four, 2 * high + 1)};
}
namespace emu {
EMU_INLINE int packed_fp8(float one, float two, int old, bool high, Fp8 format) {
  const unsigned pair = encode_fp8(one, format) | unsigned(encode_fp8(two, format)) << 8;
  return int(high ? (unsigned(old) & 0xffff) | pair << 16 : (unsigned(old) & 0xffff0000) | pair);
}
}  // namespace emu
EMU_INLINE int __builtin_amdgcn_cvt_pk_fp8_f32(float one, float two, int old, bool high) {
  return emu::packed_fp8(one, two, old, high, emu::Fp8::E4M3);
}
EMU_INLINE int __builtin_amdgcn_cvt_pk_bf8_f32(float one, float two, int old, bool high) {
  return emu::packed_fp8(one, two, old, high, emu::Fp8::E5M2);
}
EMU_INLINE emu::half2_t __builtin_amdgcn_cvt_pkrtz(float one, float two) {
  const auto toward_zero = [](float value) {
    _Float16 rounded = _Float16(value);
    // Rounding to nearest went one too far if the magnitude grew.
    if (std::fabs(float(rounded)) > std::fabs(value)) rounded = emu::bits<_Float16>(uint16_t(emu::bits<uint16_t>(rounded) - 1));
    return rounded;
  };
  return {toward_zero(one), toward_zero(two)};
}

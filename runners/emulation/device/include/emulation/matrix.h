// The matrix instructions of CDNA 3 by their published layouts (AMD matrix instruction calculator; CDNA 3 ISA, chapter
// "Matrix Arithmetic Instructions").
//
// A product of BLOCKS independent blocks is M x N x K. Lane l holds ELEMENTS consecutive k of row l % M of the first
// factor, and the same of column l % N of the second; what is left of l, its group, counts through blocks first and k after.
// Register r of the result belongs to column l % N: of each block's M rows, four follow each other in registers, then the
// groups of lanes, then further registers.
#pragma once
#include <emulation/collectives.h>
#include <emulation/floats.h>

namespace emu {

template <class T, int COUNT>
using vector_of = T __attribute__((ext_vector_type(COUNT)));

template <class Factor>
struct Operands {
  Factor a, b;
};

struct FromE4M3 {
  static float decode(uint8_t code) { return E4M3_VALUES.values[code]; }
};
struct FromE5M2 {
  static float decode(uint8_t code) { return E5M2_VALUES.values[code]; }
};
struct FromBfloat16 {
  static EMU_QUIET float decode(uint16_t bits16) { return from_bfloat16(bits16); }
};
struct Same {
  template <class T>
  static T decode(T value) { return value; }
};
// xf32 keeps ten bits of the mantissa.
struct FromXf32 {
  static EMU_QUIET float decode(float value) {
    const uint32_t all = bits<uint32_t>(value);
    return bits<float>((all + 0x0fff + (all >> 13 & 1)) & ~0x1fffu);
  }
};

// One lane's factor, as elements.
template <class Element, int ELEMENTS>
struct LaneFactors {
  Element a[ELEMENTS], b[ELEMENTS];
};

struct Modifiers {
  int cbsz, abid, blgp;
};

// The lane whose second factor a lane takes, by the three bits of `blgp`.
EMU_QUIET inline unsigned permuted_lane(unsigned lane, int blgp) {
  switch (blgp) {
    case 0: return lane;
    case 1: return lane % 32;
    case 2: return lane % 32 + 32;
    case 3: return (lane + 16) % 64;
    default: return lane % 16 + 16 * unsigned(blgp - 4);
  }
}

template <int M, int BLOCKS, int ELEMENTS>
struct Layout {
  static constexpr int GROUPS = 64 / M, K_GROUPS = GROUPS / BLOCKS, K = ELEMENTS * K_GROUPS;
  static unsigned lane(int row, int block, int k) { return unsigned(row + M * (block + BLOCKS * (k / ELEMENTS))); }
};

// Compute this lane's registers of D = A B + C. Sums are exact in double for 8 and 16 bits, and rounded once.
template <int M, int BLOCKS, class Element, int ELEMENTS, class Decode, class Sum, class Result, int REGISTERS>
EMU_QUIET vector_of<Result, REGISTERS> multiplied(const Snapshot* snapshot, unsigned lane, vector_of<Result, REGISTERS> c,
                                                  Modifiers modifiers) {
  using Factors = LaneFactors<Element, ELEMENTS>;
  using Where = Layout<M, BLOCKS, ELEMENTS>;
  if (snapshot->active != ~uint64_t(0)) emu_fault("barrier", "a matrix instruction that only some lanes of the wave reach");
  Factors all[64];
  for (int at = 0; at < 64; ++at) std::memcpy(&all[at], snapshot->slots[at], sizeof(Factors));
  constexpr int GROUPS = 64 / M;
  // Registers that one block has: M rows, of which each group of lanes holds its share; 4 x 4 has a block for each group.
  constexpr int ROWS_PER_BLOCK = M == 4 ? 4 : M / GROUPS;
  for (int r = 0; r < REGISTERS; ++r) {
    const int group = int(lane) / M, column = int(lane) % M;
    const int block = M == 4 ? group : r / ROWS_PER_BLOCK, within = M == 4 ? r : r % ROWS_PER_BLOCK;
    const int row = M == 4 ? within : within % 4 + 4 * group + 4 * GROUPS * (within / 4);
    const int span = 1 << modifiers.cbsz;
    const int source_block = modifiers.cbsz == 0 ? block : block / span * span + modifiers.abid;
    Sum total = 0;
    for (int k = 0; k < Where::K; ++k) {
      const Element a = all[Where::lane(row, source_block, k)].a[k % ELEMENTS];
      const Element b = all[permuted_lane(Where::lane(column, block, k), modifiers.blgp)].b[k % ELEMENTS];
      total += Sum(Decode::decode(a)) * Sum(Decode::decode(b));
    }
    c[r] = Result(Sum(c[r]) + total);
  }
  return c;
}

// Products of two 8-bit formats, which may differ.
template <int M, class DecodeA, class DecodeB, int REGISTERS>
EMU_QUIET vector_of<float, REGISTERS> multiplied_fp8(const Snapshot* snapshot, unsigned lane, vector_of<float, REGISTERS> c,
                                                     Modifiers modifiers) {
  using Where = Layout<M, 1, 8>;
  if (snapshot->active != ~uint64_t(0)) emu_fault("barrier", "a matrix instruction that only some lanes of the wave reach");
  const int group = int(lane) / M, column = int(lane) % M;
  for (int r = 0; r < REGISTERS; ++r) {
    const int row = r % 4 + 4 * group + 4 * (64 / M) * (r / 4);
    double total = 0;
    for (int k = 0; k < Where::K; ++k) {
      const unsigned char a = snapshot->slots[Where::lane(row, 0, k)][k % 8];
      const unsigned char b = snapshot->slots[permuted_lane(Where::lane(column, 0, k), modifiers.blgp)][8 + k % 8];
      total += double(DecodeA::decode(a)) * double(DecodeB::decode(b));
    }
    c[r] = float(double(c[r]) + total);
  }
  return c;
}

// The only modifiers that instructions in double precision have negate factors.
EMU_INLINE void refuse_modifiers(int cbsz, int abid, int blgp) {
  if (cbsz != 0 || abid != 0 || blgp != 0) emu_uncovered("modifiers of a matrix instruction in double precision");
}

// Double precision: 16 x 16 x 4 has rows 4 apart in its registers; 4 x 4 x 4 has four blocks of one register. Lanes hold one
// element of each factor: `first` and `second` are those of k = 0, and further k follow 16 lanes apart.
EMU_QUIET inline double multiplied_f64(const Snapshot* snapshot, unsigned first, unsigned second, double c) {
  if (snapshot->active != ~uint64_t(0)) emu_fault("barrier", "a matrix instruction that only some lanes of the wave reach");
  for (unsigned k = 0; k < 4; ++k) {
    const auto a = brought<Operands<double>>(snapshot, first + 16 * k).a;
    const auto b = brought<Operands<double>>(snapshot, second + 16 * k).b;
    c = std::fma(a, b, c);
  }
  return c;
}

}  // namespace emu

// Factors are taken as the vector type of the builtin, so that clang's own rules of conversion apply.
#define EMU_MFMA(name, M, BLOCKS, Factor, Element, ELEMENTS, Decode, Sum, Result, REGISTERS)                               \
  EMU_INLINE emu::vector_of<Result, REGISTERS> __builtin_amdgcn_mfma_##name(                                               \
      Factor a, Factor b, emu::vector_of<Result, REGISTERS> c, int cbsz, int abid, int blgp, EMU_PLACE) {                  \
    const emu::Operands<Factor> operands = {a, b};                                                                         \
    static_assert(sizeof(operands) == sizeof(emu::LaneFactors<Element, ELEMENTS>));                                        \
    const emu::Snapshot* snapshot = emu::converge(EMU_SITE, operands);                                                     \
    return emu::multiplied<M, BLOCKS, Element, ELEMENTS, emu::Decode, Sum, Result, REGISTERS>(snapshot, emu::lane(), c,    \
                                                                                              {cbsz, abid, blgp});         \
  }
using emu_half4 = emu::vector_of<_Float16, 4>;
using emu_half8 = emu::vector_of<_Float16, 8>;
using emu_short2 = emu::vector_of<short, 2>;
using emu_short4 = emu::vector_of<short, 4>;
using emu_bf16x8 = emu::vector_of<__bf16, 8>;
using emu_float2 = emu::vector_of<float, 2>;

EMU_MFMA(f32_32x32x1f32, 32, 2, float, float, 1, Same, double, float, 32)
EMU_MFMA(f32_16x16x1f32, 16, 4, float, float, 1, Same, double, float, 16)
EMU_MFMA(f32_4x4x1f32, 4, 16, float, float, 1, Same, double, float, 4)
EMU_MFMA(f32_32x32x2f32, 32, 1, float, float, 1, Same, double, float, 16)
EMU_MFMA(f32_16x16x4f32, 16, 1, float, float, 1, Same, double, float, 4)
EMU_MFMA(f32_32x32x4f16, 32, 2, emu_half4, _Float16, 4, Same, double, float, 32)
EMU_MFMA(f32_16x16x4f16, 16, 4, emu_half4, _Float16, 4, Same, double, float, 16)
EMU_MFMA(f32_4x4x4f16, 4, 16, emu_half4, _Float16, 4, Same, double, float, 4)
EMU_MFMA(f32_32x32x8f16, 32, 1, emu_half4, _Float16, 4, Same, double, float, 16)
EMU_MFMA(f32_16x16x16f16, 16, 1, emu_half4, _Float16, 4, Same, double, float, 4)
EMU_MFMA(f32_32x32x4bf16_1k, 32, 2, emu_short4, uint16_t, 4, FromBfloat16, double, float, 32)
EMU_MFMA(f32_16x16x4bf16_1k, 16, 4, emu_short4, uint16_t, 4, FromBfloat16, double, float, 16)
EMU_MFMA(f32_4x4x4bf16_1k, 4, 16, emu_short4, uint16_t, 4, FromBfloat16, double, float, 4)
EMU_MFMA(f32_32x32x8bf16_1k, 32, 1, emu_short4, uint16_t, 4, FromBfloat16, double, float, 16)
EMU_MFMA(f32_16x16x16bf16_1k, 16, 1, emu_short4, uint16_t, 4, FromBfloat16, double, float, 4)
EMU_MFMA(f32_32x32x4_xf32, 32, 1, emu_float2, float, 2, FromXf32, double, float, 16)
EMU_MFMA(f32_16x16x8_xf32, 16, 1, emu_float2, float, 2, FromXf32, double, float, 4)
EMU_MFMA(i32_32x32x4i8, 32, 2, int, int8_t, 4, Same, int, int, 32)
EMU_MFMA(i32_16x16x4i8, 16, 4, int, int8_t, 4, Same, int, int, 16)
EMU_MFMA(i32_4x4x4i8, 4, 16, int, int8_t, 4, Same, int, int, 4)
EMU_MFMA(i32_32x32x16_i8, 32, 1, long, int8_t, 8, Same, int, int, 16)
EMU_MFMA(i32_16x16x32_i8, 16, 1, long, int8_t, 8, Same, int, int, 4)
#ifdef __gfx950__
EMU_MFMA(f32_16x16x32_f16, 16, 1, emu_half8, _Float16, 8, Same, double, float, 4)
EMU_MFMA(f32_32x32x16_f16, 32, 1, emu_half8, _Float16, 8, Same, double, float, 16)
EMU_MFMA(f32_16x16x32_bf16, 16, 1, emu_bf16x8, uint16_t, 8, FromBfloat16, double, float, 4)
EMU_MFMA(f32_32x32x16_bf16, 32, 1, emu_bf16x8, uint16_t, 8, FromBfloat16, double, float, 16)
#endif
#undef EMU_MFMA

#define EMU_MFMA_FP8(name, M, A, B, REGISTERS)                                                                     \
  EMU_INLINE emu::vector_of<float, REGISTERS> __builtin_amdgcn_mfma_f32_##name(                                    \
      long a, long b, emu::vector_of<float, REGISTERS> c, int cbsz, int abid, int blgp, EMU_PLACE) {               \
    const emu::Operands<long> operands = {a, b};                                                                   \
    const emu::Snapshot* snapshot = emu::converge(EMU_SITE, operands);                                             \
    return emu::multiplied_fp8<M, emu::From##A, emu::From##B, REGISTERS>(snapshot, emu::lane(), c, {cbsz, abid, blgp}); \
  }
EMU_MFMA_FP8(16x16x32_fp8_fp8, 16, E4M3, E4M3, 4)
EMU_MFMA_FP8(16x16x32_fp8_bf8, 16, E4M3, E5M2, 4)
EMU_MFMA_FP8(16x16x32_bf8_fp8, 16, E5M2, E4M3, 4)
EMU_MFMA_FP8(16x16x32_bf8_bf8, 16, E5M2, E5M2, 4)
EMU_MFMA_FP8(32x32x16_fp8_fp8, 32, E4M3, E4M3, 16)
EMU_MFMA_FP8(32x32x16_fp8_bf8, 32, E4M3, E5M2, 16)
EMU_MFMA_FP8(32x32x16_bf8_fp8, 32, E5M2, E4M3, 16)
EMU_MFMA_FP8(32x32x16_bf8_bf8, 32, E5M2, E5M2, 16)
#undef EMU_MFMA_FP8

EMU_INLINE emu::vector_of<double, 4> __builtin_amdgcn_mfma_f64_16x16x4f64(double a, double b, emu::vector_of<double, 4> c,
                                                                          int cbsz, int abid, int blgp, EMU_PLACE) {
  emu::refuse_modifiers(cbsz, abid, blgp);
  const emu::Operands<double> operands = {a, b};
  const emu::Snapshot* snapshot = emu::converge(EMU_SITE, operands);
  const unsigned lane = emu::lane();
  for (unsigned r = 0; r < 4; ++r) c[r] = emu::multiplied_f64(snapshot, 4 * r + lane / 16, lane % 16, c[r]);
  return c;
}
EMU_INLINE double __builtin_amdgcn_mfma_f64_4x4x4f64(double a, double b, double c, int cbsz, int abid, int blgp, EMU_PLACE) {
  emu::refuse_modifiers(cbsz, abid, blgp);
  const emu::Operands<double> operands = {a, b};
  const emu::Snapshot* snapshot = emu::converge(EMU_SITE, operands);
  const unsigned lane = emu::lane(), first_of_block = lane % 16 / 4 * 4;
  return emu::multiplied_f64(snapshot, first_of_block + lane / 16, lane % 16, c);
}

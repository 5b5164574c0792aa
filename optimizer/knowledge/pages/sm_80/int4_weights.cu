// Convert the eight 4-bit weights of a 32-bit word to bf16 pairs: three integer operations and a subtraction per pair.
#include <cuda_bf16.h>
#include <cstdint>

// (word & mask) | magic in one LOP3. 0x4300 is 128 in bf16, whose last mantissa bit is worth 1: 0x4300 | q is 128 + q.
__device__ uint32_t masked_or(uint32_t word) {
  uint32_t out;
  asm("lop3.b32 %0, %1, 0x000F000F, 0x43004300, 0xEA;" : "=r"(out) : "r"(word));
  return out;
}

// Return nibbles 0-7 of `word` as q - 8. Pairs are (0, 4), (1, 5), (2, 6), (3, 7): pack weights in that order, or permute here.
__device__ void unpack(uint32_t word, __nv_bfloat162 (&out)[4]) {
  const __nv_bfloat162 offset = __float2bfloat162_rn(136.0f);  // 128 + 8
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t bits = masked_or(word >> (4 * i));
    out[i] = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&bits), offset);
  }
}

__global__ void dequantise(const uint32_t* packed, float* out, int words) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= words) return;
  __nv_bfloat162 pairs[4];
  unpack(packed[at], pairs);
  for (int i = 0; i < 4; ++i) {
    out[at * 8 + i] = __low2float(pairs[i]);
    out[at * 8 + i + 4] = __high2float(pairs[i]);
  }
}

// --- check ---
#include "../check.h"

int main() {
  const int words = 1000;
  std::vector<uint32_t> packed(words);
  std::vector<float> want;
  std::mt19937 engine(1);
  for (uint32_t& word : packed) {
    word = engine();
    for (int i = 0; i < 8; ++i) want.push_back(float(word >> (4 * i) & 15) - 8);
  }
  Device<uint32_t> from(packed);
  Device<float> out(std::vector<float>(words * 8));
  dequantise<<<(words + 127) / 128, 128>>>(from.at, out.at, words);
  return verdict(out.back(), want, 0.0);
}

// SiLU(gate) times value in 16 bits, in one pass: torch writes SiLU(gate) to memory and reads it again.
// @tune THREADS 128 256 512 default=256
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifndef THREADS
#define THREADS 256
#endif

#ifndef ELEMENT  // or __half
#define ELEMENT __nv_bfloat16
#endif
typedef ELEMENT Element;

__device__ float wide(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ float wide(__half v) { return __half2float(v); }
__device__ void narrow(float v, __nv_bfloat16* to) { *to = __float2bfloat16(v); }
__device__ void narrow(float v, __half* to) { *to = __float2half(v); }

__global__ void __launch_bounds__(THREADS) gated(const Element* gate, const Element* value, Element* out, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * THREADS;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(THREADS) + threadIdx.x; i < count; i += stride) {
    const float g = wide(gate[i]);
    // Rounded before the product, as torch does it.
    Element raised;
    narrow(g / (1.0f + expf(-g)), &raised);
    narrow(wide(raised) * wide(value[i]), out + i);
  }
}

extern "C" void gate(const uint16_t* gate, const uint16_t* value, uint16_t* out, int64_t batch, int64_t tokens,
                     int64_t width, void* stream) {
  const int64_t count = batch * tokens * width;
  const int64_t wanted = (count + THREADS - 1) / THREADS;
  const int blocks = static_cast<int>(wanted < 65535 ? wanted : 65535);
  gated<<<blocks, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
      reinterpret_cast<const Element*>(gate), reinterpret_cast<const Element*>(value), reinterpret_cast<Element*>(out),
      count);
}

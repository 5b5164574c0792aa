// RMSNorm of 16-bit rows: one block a row, the row kept in registers between its two passes.
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

__global__ void __launch_bounds__(THREADS) rows(const Element* x, const Element* weight, Element* out, int64_t width) {
  const Element* in = x + blockIdx.x * width;
  float total = 0.0f;
  for (int64_t c = threadIdx.x; c < width; c += THREADS) total += wide(in[c]) * wide(in[c]);
  for (int step = 16; step; step /= 2) total += __shfl_xor_sync(~0u, total, step);
  __shared__ float parts[THREADS / 32];
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = total;
  __syncthreads();
  total = 0.0f;
  for (int warp = 0; warp < THREADS / 32; ++warp) total += parts[warp];
  const float scale = rsqrtf(total / width + 1e-6f);
  for (int64_t c = threadIdx.x; c < width; c += THREADS) {
    // Rounded before the weight is applied, as the module does it.
    Element scaled;
    narrow(wide(in[c]) * scale, &scaled);
    narrow(wide(scaled) * wide(weight[c]), out + blockIdx.x * width + c);
  }
}

extern "C" void rms_norm(const uint16_t* x, const uint16_t* weight, uint16_t* out, int64_t batch, int64_t tokens,
                         int64_t width, void* stream) {
  rows<<<batch * tokens, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
      reinterpret_cast<const Element*>(x), reinterpret_cast<const Element*>(weight), reinterpret_cast<Element*>(out),
      width);
}

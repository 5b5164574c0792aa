// Programmatic dependent launch: the second kernel starts while the first one ends, and waits only where it must.
#include <cuda_runtime.h>

__global__ void first(const float* x, float* middle, int count) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) middle[at] = x[at] * 2;
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");  // once all blocks did this or ended, the next may start
}

__global__ void second(const float* bias, const float* middle, float* out, int count) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  const float mine = at < count ? bias[at] : 0;            // does not depend on the first kernel: read it early
  asm volatile("griddepcontrol.wait;" ::: "memory");  // the first grid has ended and its writes are visible
  if (at < count) out[at] = middle[at] + mine;
}

void launch(const float* x, const float* bias, float* middle, float* out, int count, cudaStream_t stream) {
  const int blocks = (count + 255) / 256;
  first<<<blocks, 256, 0, stream>>>(x, middle, count);
  cudaLaunchAttribute early[1];
  early[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early[0].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t how{};
  how.gridDim = dim3(blocks), how.blockDim = dim3(256), how.stream = stream, how.attrs = early, how.numAttrs = 1;
  cudaLaunchKernelEx(&how, second, bias, static_cast<const float*>(middle), out, count);
}

// --- check ---
#include "../check.h"

int main() {
  const int count = 1 << 20;
  const auto x = normal(count, 1), bias = normal(count, 2);
  std::vector<double> want(count);
  for (int i = 0; i < count; ++i) want[i] = double(x[i]) * 2 + bias[i];
  Device<float> from(x), added(bias), middle(std::vector<float>(count, 0.0f)), out(std::vector<float>(count, 0.0f));
  for (int turn = 0; turn < 3; ++turn) launch(from.at, added.at, middle.at, out.at, count, nullptr);
  return verdict(out.back(), want, 1e-6);
}

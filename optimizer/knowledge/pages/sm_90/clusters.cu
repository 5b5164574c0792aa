// Sum one long row with a cluster of blocks, which add partial sums in the shared memory of the first block.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;
constexpr int CLUSTER = 8, THREADS = 256;  // 8 is the largest portable size; 16 needs an attribute of the function

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS) row_sums(const float* x, float* out, int columns) {
  __shared__ float partial[CLUSTER], warps[THREADS / 32];
  cg::cluster_group cluster = cg::this_cluster();
  const int rank = cluster.block_rank(), row = blockIdx.x / CLUSTER;
  float sum = 0;
  for (int c = rank * THREADS + threadIdx.x; c < columns; c += CLUSTER * THREADS) sum += x[size_t(row) * columns + c];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (float warp : warps) total += warp;
    *cluster.map_shared_rank(&partial[rank], 0) = total;  // written into block 0's shared memory
  }
  cluster.sync();  // all partial sums are there; also keeps block 0 alive until everybody has written
  if (rank == 0 && threadIdx.x == 0) {
    float total = 0;
    for (float part : partial) total += part;
    out[row] = total;
  }
}

// --- check ---
#include "../check.h"

int main() {
  const int rows = 5, columns = 100003;
  const auto x = normal(size_t(rows) * columns, 1);
  std::vector<double> want(rows);
  for (size_t i = 0; i < x.size(); ++i) want[i / columns] += x[i];
  Device<float> from(x), out(std::vector<float>(rows, 0.0f));
  row_sums<<<rows * CLUSTER, THREADS>>>(from.at, out.at, columns);
  return verdict(out.back(), want, 1e-5);
}

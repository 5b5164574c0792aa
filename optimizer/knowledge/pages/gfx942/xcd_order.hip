// Order tiles so that neighbours run on one die. Workgroup w runs on die w % 8, which determines its tile.
#include <hip/hip_runtime.h>

constexpr int DIES = 8;  // MI300X: 8 dies (XCD); MI300A: 6. In SPX mode a grid is dealt to all of them in turn.

// Return the tile of a workgroup: every die gets consecutive tiles, also where `tiles` is no multiple of DIES.
__device__ int tile_of(int workgroup, int tiles) {
  const int die = workgroup % DIES, turn = workgroup / DIES;
  const int even = tiles / DIES, longer = tiles % DIES;  // the first `longer` dies have one tile more
  return die * even + min(die, longer) + turn;
}

// Within a die, go through groups of `height` rows of tiles column by column, so that L2 still has both factors.
__device__ int2 row_and_column(int tile, int rows, int columns, int height) {
  const int group = tile / (height * columns), first = group * height;
  const int rows_here = min(height, rows - first), inside = tile - group * height * columns;
  return make_int2(first + inside % rows_here, inside / rows_here);
}

extern "C" __global__ void __launch_bounds__(64) fill(int* out, int rows, int columns) {  // out [rows, columns] tiles
  const int tile = tile_of(blockIdx.x, rows * columns);
  const int2 at = row_and_column(tile, rows, columns, 4);
  if (threadIdx.x == 0) out[at.x * columns + at.y] = blockIdx.x % DIES;
}

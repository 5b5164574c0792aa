"""Multiply matrices with persistent programs: as many as the device runs at once, each of which loops over tiles."""

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K, GROUP = 64, 64, 32, 8


@triton.jit
def tile_at(number, rows, columns, group: tl.constexpr):
    """Return row and column of a tile. Each `group` rows of tiles go column by column, so both factors stay in L2."""
    first = number // (group * columns) * group
    height = tl.minimum(group, rows - first)
    inside = number % (group * columns)
    return first + inside % height, inside // height


@triton.jit
def gemm_kernel(
    a, b, c, m, n, k, programs, bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr, group: tl.constexpr
):
    """Compute c [m, n] = a [m, k] times b [k, n], all row-major."""
    rows_of_tiles, columns_of_tiles = tl.cdiv(m, bm), tl.cdiv(n, bn)
    for number in range(tl.program_id(0), rows_of_tiles * columns_of_tiles, programs):
        i, j = tile_at(number, rows_of_tiles, columns_of_tiles, group)
        rows, columns, inner = i * bm + tl.arange(0, bm), j * bn + tl.arange(0, bn), tl.arange(0, bk)
        total = tl.zeros((bm, bn), tl.float32)
        for start in range(0, k, bk):
            depth = start + inner
            left = tl.load(a + rows[:, None] * k + depth, mask=(rows[:, None] < m) & (depth < k), other=0.0)
            right = tl.load(b + depth[:, None] * n + columns, mask=(depth[:, None] < k) & (columns < n), other=0.0)
            total = tl.dot(left, right, total)
        inside = (rows[:, None] < m) & (columns < n)
        tl.store(c + rows[:, None] * n + columns, total.to(c.dtype.element_ty), mask=inside)


def custom_kernel(a, b):
    """Return a [m, k] times b [k, n] in 16 bits."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    units = torch.cuda.get_device_properties(a.device).multi_processor_count if a.is_cuda else 4
    programs = min(units, triton.cdiv(m, BLOCK_M) * triton.cdiv(n, BLOCK_N))
    gemm_kernel[(programs,)](
        a, b, c, m, n, k, programs, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, num_warps=4, num_stages=2
    )
    return c


# --- check ---
LIMIT = 1e-3


def inputs(device):
    generator = torch.Generator().manual_seed(1)
    shapes = (300, 100), (100, 270)
    return tuple(torch.randn(*shape, generator=generator).half().to(device) for shape in shapes)


def expected(a, b):
    return a.double() @ b.double()

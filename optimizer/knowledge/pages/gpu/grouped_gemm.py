"""Multiply for all experts in one launch. A program finds its group by counting the tiles of the groups before it."""

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K = 32, 64, 32


@triton.jit
def grouped_kernel(
    x, w, offsets, out, n, k, groups: tl.constexpr, bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr
):
    """Compute out [tokens, n] from x [tokens, k], whose rows are sorted by group, and w [groups, k, n].

    The rows of group g are offsets[g] to offsets[g + 1] - 1.
    """
    number, tile, group, first, end = tl.program_id(0), 0, -1, 0, 0
    for g in range(groups):  # a few loads from L1 instead of a table that the host would have to know
        begin, finish = tl.load(offsets + g), tl.load(offsets + g + 1)
        tiles = tl.cdiv(finish - begin, bm)
        mine = (number >= tile) & (number < tile + tiles)
        group = tl.where(mine, g, group)
        first = tl.where(mine, begin + (number - tile) * bm, first)
        end = tl.where(mine, finish, end)
        tile += tiles
    if group >= 0:  # the grid is an upper bound: cdiv(tokens, bm) + groups tiles of rows
        rows, columns = first + tl.arange(0, bm), tl.program_id(1) * bn + tl.arange(0, bn)
        weights = w + group.to(tl.int64) * k * n
        total = tl.zeros((bm, bn), tl.float32)
        for start in range(0, k, bk):
            depth = start + tl.arange(0, bk)
            left = tl.load(x + rows[:, None] * k + depth, mask=(rows[:, None] < end) & (depth < k), other=0.0)
            right = tl.load(
                weights + depth[:, None] * n + columns, mask=(depth[:, None] < k) & (columns < n), other=0.0
            )
            total = tl.dot(left, right, total)
        inside = (rows[:, None] < end) & (columns < n)
        tl.store(out + rows[:, None] * n + columns, total.to(out.dtype.element_ty), mask=inside)


def custom_kernel(x, w, offsets):
    """Return [tokens, n] for x [tokens, k] sorted by group, w [groups, k, n] and offsets [groups + 1] in int32."""
    (tokens, k), (groups, _, n) = x.shape, w.shape
    out = torch.empty((tokens, n), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(tokens, BLOCK_M) + groups, triton.cdiv(n, BLOCK_N))
    grouped_kernel[grid](x, w, offsets, out, n, k, groups, BLOCK_M, BLOCK_N, BLOCK_K, num_warps=4, num_stages=2)
    return out


# --- check ---
LIMIT = 1e-3


def inputs(device):
    generator = torch.Generator().manual_seed(1)
    x, w = torch.randn(150, 70, generator=generator).half(), torch.randn(4, 70, 90, generator=generator).half()
    offsets = torch.tensor([0, 33, 33, 149, 150], dtype=torch.int32)  # an empty group, and one of a single row
    return tuple(tensor.to(device) for tensor in (x, w, offsets))


def expected(x, w, offsets):
    parts = [x[offsets[g] : offsets[g + 1]].double() @ w[g].double() for g in range(len(w))]
    return torch.cat(parts)

# @tune BLOCK_M 16 32 64 128 default=64
# @tune BLOCK_N 64 128 256 default=128
# @tune BLOCK_K 32 64 default=64
# @tune WARPS 4 8 default=4
# @tune STAGES 2 3 4 default=3
import torch
import triton
import triton.language as tl

BLOCK_M = 64
BLOCK_N = 128
BLOCK_K = 64
WARPS = 4
STAGES = 3


@triton.jit
def grouped_kernel(x, w, offsets, out, experts, n, k, bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr):
    """One program a tile of one expert's rows; it finds the expert in the running sum of tiles."""
    number = tl.program_id(1)
    tiles, begin, mine, first, last = 0, 0, -1, 0, 0
    for expert in range(experts):
        end = tl.load(offsets + expert)
        more = tl.cdiv(end - begin, bm)
        found = (number >= tiles) & (number < tiles + more)
        mine = tl.where(found, expert, mine)
        first = tl.where(found, begin + (number - tiles) * bm, first)
        last = tl.where(found, end, last)
        tiles += more
        begin = end
    if mine >= 0:  # the grid is an upper bound
        rows, cols = first + tl.arange(0, bm), tl.program_id(0) * bn + tl.arange(0, bn)
        inner = tl.arange(0, bk)
        left = x + rows[:, None].to(tl.int64) * k + inner
        right = w + mine.to(tl.int64) * n * k + (cols % n)[None, :].to(tl.int64) * k + inner[:, None]
        total = tl.zeros((bm, bn), tl.float32)
        for start in range(0, k, bk):
            inside = (rows[:, None] < last) & (inner[None, :] < k - start)
            ours = tl.load(left, mask=inside, other=0.0)
            theirs = tl.load(right, mask=inner[:, None] < k - start, other=0.0)
            total = tl.dot(ours, theirs, total)
            left += bk
            right += bk
        target = out + rows[:, None].to(tl.int64) * n + cols
        tl.store(target, total.to(tl.bfloat16), mask=(rows[:, None] < last) & (cols < n))


def custom_kernel(x, w, offsets):
    """x [tokens, k] sorted by expert, w [experts, n, k], offsets [experts]: ends of the groups -> [tokens, n]."""
    (tokens, k), (experts, n, _) = x.shape, w.shape
    out = torch.empty((tokens, n), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(n, BLOCK_N), triton.cdiv(tokens, BLOCK_M) + experts)
    grouped_kernel[grid](
        x, w, offsets, out, experts, n, k, BLOCK_M, BLOCK_N, BLOCK_K, num_warps=WARPS, num_stages=STAGES
    )
    return out

# @tune BLOCK_M 64 128 default=128
# @tune BLOCK_N 64 128 default=128
# @tune GROUP 4 8 16 default=8
# @tune WARPS 4 8 default=8
# @tune STAGES 2 3 4 default=3
import torch
import triton
import triton.language as tl

BLOCK_M = 128
BLOCK_N = 128
GROUP = 8
WARPS = 8
STAGES = 3


@triton.jit
def gemm_kernel(
    a, b, a_scale, b_scale, bias, out, m, n, k, bm: tl.constexpr, bn: tl.constexpr, group: tl.constexpr
):
    """One program a tile; blocks of 128 along k are summed by the tensor cores and added up in float32."""
    columns_of_tiles = tl.cdiv(n, bn)
    first = tl.program_id(0) // (group * columns_of_tiles) * group
    height = tl.minimum(group, tl.cdiv(m, bm) - first)
    inside = tl.program_id(0) % (group * columns_of_tiles)
    rows = (first + inside % height) * bm + tl.arange(0, bm)
    cols = inside // height * bn + tl.arange(0, bn)
    inner = tl.arange(0, 128)
    left = a + (rows % m)[:, None].to(tl.int64) * k + inner
    right = b + (cols % n)[None, :].to(tl.int64) * k + inner[:, None]
    total = tl.zeros((bm, bn), tl.float32)
    for start in range(0, k, 128):
        ours = tl.load(left, mask=inner[None, :] < k - start, other=0.0)
        theirs = tl.load(right, mask=inner[:, None] < k - start, other=0.0)
        total += tl.dot(ours, theirs)  # a fresh sum a block: Hopper's own accumulator keeps 14 bits
        left += 128
        right += 128
    scale = tl.load(a_scale + rows, mask=rows < m, other=0.0)[:, None] * tl.load(
        b_scale + cols, mask=cols < n, other=0.0
    )
    result = total * scale + tl.load(bias + cols, mask=cols < n, other=0.0).to(tl.float32)
    target = out + rows[:, None].to(tl.int64) * n + cols
    tl.store(target, result.to(tl.bfloat16), mask=(rows[:, None] < m) & (cols < n))


def custom_kernel(a, b, a_scale, b_scale, bias):
    """a [m, k], b [n, k] e4m3fn, a_scale [m], b_scale [n], bias [n] -> scaled a @ b.T + bias [m, n] bfloat16."""
    (m, k), n = a.shape, b.shape[0]
    out = torch.empty((m, n), dtype=torch.bfloat16, device=a.device)
    grid = (triton.cdiv(m, BLOCK_M) * triton.cdiv(n, BLOCK_N),)
    gemm_kernel[grid](
        a, b, a_scale, b_scale, bias, out, m, n, k, BLOCK_M, BLOCK_N, GROUP, num_warps=WARPS, num_stages=STAGES
    )
    return out

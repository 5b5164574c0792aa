# @tune BLOCK_M 16 32 64 128 default=16
# @tune BLOCK_N 32 64 128 default=64
# @tune WARPS 4 8 default=4
# @tune STAGES 2 3 4 default=3
import torch
import triton
import triton.language as tl

BLOCK_M = 16
BLOCK_N = 64
WARPS = 4
STAGES = 3


@triton.jit
def gemm_kernel(x, packed, scales, out, m, n, k, bm: tl.constexpr, bn: tl.constexpr):
    """One program a tile; a group of 128 along k is unpacked, multiplied, and scaled as a sum."""
    rows, cols = tl.program_id(1) * bm + tl.arange(0, bm), tl.program_id(0) * bn + tl.arange(0, bn)
    inner = tl.arange(0, 128)
    left = x + rows[:, None].to(tl.int64) * k + inner[None, :]
    # Eight lanes read the same word: the loads fall into the same sectors.
    words = packed + (cols % n)[None, :].to(tl.int64) * (k // 8) + (inner // 8)[:, None]
    shifts = (inner % 8 * 4)[:, None]
    total = tl.zeros((bm, bn), tl.float32)
    for group in range(0, k // 128):
        ours = tl.load(left, mask=rows[:, None] < m, other=0.0)
        weights = ((tl.load(words) >> shifts) & 15) - 8
        scale = tl.load(scales + (cols % n) * (k // 128) + group).to(tl.float32)
        total += tl.dot(ours, weights.to(tl.bfloat16)) * scale[None, :]
        left += 128
        words += 16
    target = out + rows[:, None].to(tl.int64) * n + cols[None, :]
    tl.store(target, total.to(tl.bfloat16), mask=(rows[:, None] < m) & (cols[None, :] < n))


def custom_kernel(x, packed, scales):
    """x [m, k], packed [n, k/8] int32, scales [n, k/128] -> x @ dequantised.T [m, n]."""
    (m, k), n = x.shape, packed.shape[0]
    out = torch.empty((m, n), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(n, BLOCK_N), triton.cdiv(m, BLOCK_M))
    gemm_kernel[grid](x, packed, scales, out, m, n, k, BLOCK_M, BLOCK_N, num_warps=WARPS, num_stages=STAGES)
    return out

# @tune BLOCK_M 64 128 default=64
# @tune BLOCK_N 64 128 default=64
# @tune WARPS 4 8 default=4
# @tune STAGES 1 2 3 default=2
import torch
import triton
import triton.language as tl

BLOCK_M = 64
BLOCK_N = 64
WARPS = 4
STAGES = 2


@triton.jit
def decoded(bits):
    """e4m3fnuz as half precision, exactly: the same digits under an exponent bias of 15 instead of 8, times 2^7."""
    wide = bits.to(tl.uint16)
    half = (((wide & 0x80) << 8) | ((wide & 0x7F) << 7)).to(tl.float16, bitcast=True)
    return half * 128.0


@triton.jit
def gemm_kernel(a, b, a_scale, b_scale, out, m, n, k, bm: tl.constexpr, bn: tl.constexpr):
    """One program a tile; blocks of 128 along k are multiplied in half precision and scaled in float32."""
    rows = tl.program_id(0) * bm + tl.arange(0, bm)
    cols = tl.program_id(1) * bn + tl.arange(0, bn)
    inner = tl.arange(0, 128)
    scale_rows = tl.cdiv(n, 128)
    total = tl.zeros((bm, bn), tl.float32)
    for block in range(0, k // 128):
        depth = block * 128 + inner
        left = tl.load(a + rows[:, None] + depth[None, :] * m, mask=rows[:, None] < m, other=0)
        right = tl.load(b + cols[None, :] + depth[:, None] * n, mask=cols[None, :] < n, other=0)
        left_scale = tl.load(a_scale + rows + block * m, mask=rows < m, other=0.0)
        right_scale = tl.load(b_scale + cols // 128 + block * scale_rows, mask=cols < n, other=0.0)
        total += tl.dot(decoded(left), decoded(right)) * left_scale[:, None] * right_scale[None, :]
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    tl.store(out + rows[:, None] * n + cols[None, :], total.to(tl.bfloat16), mask=inside)


def custom_kernel(a, b, a_scale, b_scale):
    """a [m, k], b [n, k] e4m3fnuz, scales float32, all column-major -> a @ b.T scaled, [m, n] bfloat16.

    Reads the factors as bytes, so that it runs where the hardware knows no e4m3fnuz."""
    (m, k), n = a.shape, b.shape[0]
    out = torch.empty((m, n), dtype=torch.bfloat16, device=a.device)
    grid = (triton.cdiv(m, BLOCK_M), triton.cdiv(n, BLOCK_N))
    left, right = a.view(torch.uint8), b.view(torch.uint8)
    gemm_kernel[grid](
        left, right, a_scale, b_scale, out, m, n, k, BLOCK_M, BLOCK_N, num_warps=WARPS, num_stages=STAGES
    )
    return out

"""Multiply fp8 matrices (OCP) on gfx950. Triton selects its wider MFMA instructions; only the tiles have to grow."""

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K = 128, 128, 128


@triton.jit
def gemm_kernel(a, b, c, n, k, bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr):
    """Compute c [m, n] in float32 from a [m, k] and b [n, k] in e4m3fn. Sizes are multiples of the blocks."""
    rows = tl.program_id(0) * bm + tl.arange(0, bm)
    columns = tl.program_id(1) * bn + tl.arange(0, bn)
    inner = tl.arange(0, bk)
    left, right = a + rows[:, None] * k + inner, b + columns[None, :] * k + inner[:, None]
    total = tl.zeros((bm, bn), tl.float32)
    for _ in range(0, k, bk):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += bk
        right += bk
    tl.store(c + rows[:, None] * n + columns, total)


def custom_kernel(a, b):
    """Return a [m, k] times b [n, k] transposed, in float32."""
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty((m, n), dtype=torch.float32, device=a.device)
    # 160 KiB of LDS: a third stage of 2 x 16 KiB fits, which does not on gfx942's 64 KiB.
    gemm_kernel[(m // BLOCK_M, n // BLOCK_N)](
        a, b, c, n, k, BLOCK_M, BLOCK_N, BLOCK_K, num_warps=8, num_stages=3, matrix_instr_nonkdim=16
    )
    return c


# --- check ---
LIMIT = 1e-5


def inputs(device):
    generator = torch.Generator().manual_seed(1)
    shapes = (128, 256), (128, 256)
    return tuple(torch.randn(*shape, generator=generator).to(torch.float8_e4m3fn).to(device) for shape in shapes)


def expected(a, b):
    return a.double() @ b.double().T

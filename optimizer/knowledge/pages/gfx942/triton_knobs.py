"""Multiply matrices in Triton with launch options that only AMD's backend has."""

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K = 128, 128, 64


@triton.jit
def gemm_kernel(a, b, c, m, n, k, bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr):
    """Compute c [m, n] = a [m, k] times b [n, k] transposed. Sizes are multiples of the blocks."""
    rows = tl.program_id(0) * bm + tl.arange(0, bm)
    columns = tl.program_id(1) * bn + tl.arange(0, bn)
    inner = tl.arange(0, bk)
    left, right = a + rows[:, None] * k + inner, b + columns[None, :] * k + inner[:, None]
    total = tl.zeros((bm, bn), tl.float32)
    for _ in range(0, k, bk):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += bk
        right += bk
    tl.store(c + rows[:, None] * n + columns, total.to(c.dtype.element_ty))


def custom_kernel(a, b):
    """Return a [m, k] times b [n, k] transposed, in 16 bits."""
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    # matrix_instr_nonkdim: 16 or 32, the M and N of the MFMA. kpack 2: 16-byte reads from LDS on gfx942.
    # waves_per_eu: registers are held below 512 / waves. num_stages 2: the next tile is loaded during this one.
    gemm_kernel[(m // BLOCK_M, n // BLOCK_N)](
        a, b, c, m, n, k, BLOCK_M, BLOCK_N, BLOCK_K,
        num_warps=8, num_stages=2, waves_per_eu=2, matrix_instr_nonkdim=16, kpack=2,
    )  # fmt: skip
    return c


# --- check ---
LIMIT = 1e-3


def inputs(device):
    generator = torch.Generator().manual_seed(1)
    shapes = (256, 128), (128, 128)
    return tuple(torch.randn(*shape, generator=generator).half().to(device) for shape in shapes)


def expected(a, b):
    return a.double() @ b.double().T

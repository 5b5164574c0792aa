"""Multiply matrices in Gluon with specialised warps: one loads through TMA, two warpgroups multiply with WGMMA."""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

STAGES = 3


@gluon.jit
def load(a, b, c, a_tiles, b_tiles, c_tiles, full, empty, k, stages: gl.constexpr):
    """Fill the stages with 2 × 64 rows of a and 256 rows of b, each when both consumers gave it back."""
    row, column = gl.program_id(0) * 128, gl.program_id(1) * 256
    for step in range(gl.cdiv(k, 64)):
        slot = step % stages
        # A new barrier is in phase 0: a wait for the phase before it returns at once.
        mbarrier.wait(empty.index(slot), ((step // stages) & 1) ^ 1)
        arrived = full.index(slot)
        mbarrier.expect(arrived, (128 + 256) * 64 * 2)
        tma.async_copy_global_to_shared(a, [row, step * 64], arrived, a_tiles.index(slot * 2))
        tma.async_copy_global_to_shared(a, [row + 64, step * 64], arrived, a_tiles.index(slot * 2 + 1))
        tma.async_copy_global_to_shared(b, [column, step * 64], arrived, b_tiles.index(slot))


@gluon.jit
def multiply(which: gl.constexpr, a, b, c, a_tiles, b_tiles, c_tiles, full, empty, k, stages: gl.constexpr):
    """Compute rows 64 · which to 64 · which + 63 of the tile. One product stays in flight."""
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 256, 16]
    )
    total = gl.zeros((64, 256), dtype=gl.float32, layout=layout)
    for step in range(gl.cdiv(k, 64)):
        slot = step % stages
        mbarrier.wait(full.index(slot), (step // stages) & 1)
        right = b_tiles.index(slot).permute((1, 0))
        total = warpgroup_mma(a_tiles.index(slot * 2 + which), right, total, is_async=True)
        total = warpgroup_mma_wait(num_outstanding=1, deps=(total,))
        # The product before this one is complete: its stage may be filled again.
        mbarrier.arrive(empty.index((step + stages - 1) % stages), count=1, pred=step > 0)
    total = warpgroup_mma_wait(num_outstanding=0, deps=(total,))
    tile = c_tiles.index(which)
    tile.store(total.to(gl.float16))
    fence_async_shared()
    row, column = gl.program_id(0) * 128 + 64 * which, gl.program_id(1) * 256
    tma.async_copy_shared_to_global(c, [row, column], tile)
    tma.store_wait(pendings=0)


@gluon.jit
def upper(a, b, c, a_tiles, b_tiles, c_tiles, full, empty, k, stages: gl.constexpr):
    """Multiply for the upper 64 rows."""
    multiply(0, a, b, c, a_tiles, b_tiles, c_tiles, full, empty, k, stages)


@gluon.jit
def lower(a, b, c, a_tiles, b_tiles, c_tiles, full, empty, k, stages: gl.constexpr):
    """Multiply for the lower 64 rows."""
    multiply(1, a, b, c, a_tiles, b_tiles, c_tiles, full, empty, k, stages)


@gluon.jit
def gemm_kernel(a, b, c, k, stages: gl.constexpr):
    """Compute a tile of 128 × 256 of c [m, n] = a [m, k] times b [n, k] transposed, all given as descriptors."""
    a_tiles = gl.allocate_shared_memory(gl.float16, [2 * stages, 64, 64], a.layout)
    b_tiles = gl.allocate_shared_memory(gl.float16, [stages, 256, 64], b.layout)
    c_tiles = gl.allocate_shared_memory(gl.float16, [2, 64, 256], c.layout)
    full = gl.allocate_shared_memory(gl.int64, [stages, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [stages, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(stages):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=2)
    arguments = (a, b, c, a_tiles, b_tiles, c_tiles, full, empty, k, stages)
    # Four warps (num_warps) run the first function; the others get 4 and 1 warps, and 240 and 24 registers a thread.
    gl.warp_specialize([(upper, arguments), (lower, arguments), (load, arguments)], [4, 1], [240, 24])


def custom_kernel(a, b):
    """Return a [m, k] times b [n, k] transposed, in float16. Rows are multiples of 16 bytes."""
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)

    def described(tensor, *box):
        return TensorDescriptor.from_tensor(
            tensor, list(box), gl.NVMMASharedLayout.get_default_for(list(box), gl.float16)
        )

    grid = (triton.cdiv(m, 128), triton.cdiv(n, 256))
    operands = described(a, 64, 64), described(b, 256, 64), described(c, 64, 256)
    gemm_kernel[grid](*operands, k, STAGES, num_warps=4)
    return c


# --- check ---
LIMIT = 1e-3


def inputs(device):
    generator = torch.Generator().manual_seed(1)
    shapes = (200, 456), (328, 456)
    return tuple(torch.randn(*shape, generator=generator).half().to(device) for shape in shapes)


def expected(a, b):
    return a.double() @ b.double().T

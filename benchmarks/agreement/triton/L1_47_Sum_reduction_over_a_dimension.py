"""Sum over the middle dimension in Triton: neighbouring columns are read together, row after row."""

import torch
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x, out, rows, cols, height: tl.constexpr, width: tl.constexpr):
    """Add up `width` columns of one matrix in tiles of `height` rows."""
    matrix = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * width + tl.arange(0, width)
    total = tl.zeros([height, width], tl.float32)
    for start in range(0, rows, height):
        row = start + tl.arange(0, height)
        places = (matrix * rows + row)[:, None] * cols + column[None, :]
        total += tl.load(x + places, mask=(row < rows)[:, None] & (column < cols)[None, :], other=0.0)
    tl.store(out + matrix * cols + column, tl.sum(total, 0), mask=column < cols)


class ModelNew(torch.nn.Module):
    """Sum over dimension 1 of a tensor with three dimensions."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim != 1:
            raise ValueError(f"dimension 1 is summed, not {dim}")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sums, the dimension kept with length 1."""
        out = x.new_empty(x.shape[0], 1, x.shape[2])
        grid = (triton.cdiv(x.shape[2], 128), x.shape[0])
        sum_kernel[grid](x, out, x.shape[1], x.shape[2], 16, 128, num_warps=4)
        return out

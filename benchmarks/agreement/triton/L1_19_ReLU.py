"""Compute ReLU in Triton with one read and one write of each element, as the reference has."""

import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x, out, size, block: tl.constexpr):
    """Compute one block of elements; offsets are 64 bits wide, since tensors have more than 2^31 bytes."""
    lanes = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = lanes < size
    value = tl.load(x + lanes, mask=inside)
    tl.store(out + lanes, tl.where(value < 0.0, 0.0, value), mask=inside)


class ModelNew(torch.nn.Module):
    """Apply ReLU in one launch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the activation of every element, in a new tensor."""
        out = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 2048),)](x, out, x.numel(), 2048, num_warps=4)
        return out

"""Compute LayerNorm over very long rows in Triton: partial moments of chunks, then a launch that merges and applies
them.

Moments are merged as Chan, Golub and LeVeque (1983) do, so that a large mean does not cancel the variance.
"""

import math

import torch
import triton
import triton.language as tl

CHUNK = 8192


@triton.jit
def moments_kernel(x, means, squares, cols, chunks, block: tl.constexpr):
    """Write a chunk's mean and its sum of squared deviations."""
    row, chunk = tl.program_id(1).to(tl.int64), tl.program_id(0)
    lanes = chunk * block + tl.arange(0, block)
    value = tl.load(x + row * cols + lanes, mask=lanes < cols, other=0.0)
    count = tl.minimum(block, cols - chunk * block)
    mean = tl.sum(value, 0) / count
    deviation = tl.where(lanes < cols, value - mean, 0.0)
    tl.store(means + row * chunks + chunk, mean)
    tl.store(squares + row * chunks + chunk, tl.sum(deviation * deviation, 0))


@triton.jit
def apply_kernel(x, out, weight, bias, means, squares, cols, chunks, eps, most: tl.constexpr, block: tl.constexpr):
    """Merge the moments of a row, then normalise one of its chunks."""
    row, part = tl.program_id(1).to(tl.int64), tl.arange(0, most)
    some = part < chunks
    counts = tl.where(some, tl.minimum(block, cols - part * block), 0)
    partial = tl.load(means + row * chunks + part, mask=some, other=0.0)
    mean = tl.sum(partial * counts, 0) / cols
    within = tl.sum(tl.load(squares + row * chunks + part, mask=some, other=0.0), 0)
    between = tl.sum(counts * (partial - mean) * (partial - mean), 0)
    scale = 1.0 / tl.sqrt((within + between) / cols + eps)
    lanes = tl.program_id(0) * block + tl.arange(0, block)
    inside = lanes < cols
    value = tl.load(x + row * cols + lanes, mask=inside)
    gain, shift = tl.load(weight + lanes, mask=inside), tl.load(bias + lanes, mask=inside)
    tl.store(out + row * cols + lanes, (value - mean) * scale * gain + shift, mask=inside)


class ModelNew(torch.nn.Module):
    """Apply LayerNorm over all dimensions but the first."""

    def __init__(self, normalized_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.ln = torch.nn.LayerNorm(normalized_shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the normalised rows, scaled and shifted by the layer's parameters."""
        rows, cols = x.shape[0], math.prod(x.shape[1:])
        chunks = triton.cdiv(cols, CHUNK)
        out, partial = torch.empty_like(x), x.new_empty(2, rows, chunks)
        moments_kernel[(chunks, rows)](x, partial[0], partial[1], cols, chunks, CHUNK, num_warps=8)
        most = triton.next_power_of_2(chunks)
        parameters = (self.ln.weight, self.ln.bias, partial[0], partial[1])
        apply_kernel[(chunks, rows)](x, out, *parameters, cols, chunks, self.ln.eps, most, CHUNK, num_warps=8)
        return out

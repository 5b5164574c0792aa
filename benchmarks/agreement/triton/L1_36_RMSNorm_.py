"""RMSNorm over channels in Triton: every element is read once, the reference reads it four times."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x, out, features, pixels, eps, channels: tl.constexpr, block: tl.constexpr):
    """Normalise a block of pixels of one image over all of its channels, which stay in registers."""
    channel = tl.arange(0, channels)[:, None]
    pixel = tl.program_id(0) * block + tl.arange(0, block)[None, :]
    inside = (channel < features) & (pixel < pixels)
    places = tl.program_id(1).to(tl.int64) * features * pixels + channel * pixels + pixel
    value = tl.load(x + places, mask=inside, other=0.0)
    square = tl.sum(value * value, 0) / features
    tl.store(out + places, value / tl.sqrt(square + eps)[None, :], mask=inside)


class ModelNew(torch.nn.Module):
    """Apply RMSNorm to images with `num_features` channels."""

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.num_features, self.eps = num_features, eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the images divided by the root of their mean square over channels."""
        out, pixels = torch.empty_like(x), x[0, 0].numel()
        grid = (triton.cdiv(pixels, 128), x.shape[0])
        channels = triton.next_power_of_2(self.num_features)
        rms_norm_kernel[grid](x, out, self.num_features, pixels, self.eps, channels, 128, num_warps=8)
        return out

"""Compute Gemm, multiply and LeakyReLU in torch: the linear layer as it is, the two steps after it in place."""

import torch
from torch.nn import functional


class ModelNew(torch.nn.Module):
    """Scale and activate the output of a linear layer without another buffer."""

    def __init__(self, in_features: int, out_features: int, multiplier: float, negative_slope: float) -> None:
        super().__init__()
        self.gemm = torch.nn.Linear(in_features, out_features)
        self.multiplier, self.negative_slope = multiplier, negative_slope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the activations."""
        return functional.leaky_relu_(self.gemm(x).mul_(self.multiplier), self.negative_slope)

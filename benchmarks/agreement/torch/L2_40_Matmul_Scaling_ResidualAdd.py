"""Matmul, scaling and residual in torch: y s + y is y (1 + s), which `addmm` does at no cost."""

import torch


class ModelNew(torch.nn.Module):
    """A linear layer times 1 + s."""

    def __init__(self, in_features: int, out_features: int, scaling_factor: float) -> None:
        super().__init__()
        self.matmul = torch.nn.Linear(in_features, out_features)
        self.scaling_factor = scaling_factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scaled product and bias."""
        factor = 1.0 + self.scaling_factor
        return torch.addmm(self.matmul.bias, x, self.matmul.weight.t(), beta=factor, alpha=factor)

"""Divide by the Frobenius norm in torch, by `linalg.vector_norm` and a product with the reciprocal."""

import torch


class ModelNew(torch.nn.Module):
    """Scale a tensor to the norm 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x divided by the norm of all its elements."""
        return x * torch.linalg.vector_norm(x).reciprocal()

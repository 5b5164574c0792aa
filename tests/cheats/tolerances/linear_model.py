# A linear layer whose outputs, about 7e-6, lie below the absolute tolerance of 1e-4.
import torch


class Model(torch.nn.Module):
    """Apply a linear layer without a bias, scaled down."""

    def __init__(self, features):
        super().__init__()
        self.linear = torch.nn.Linear(features, features, bias=False)

    def forward(self, x):
        return self.linear(x) * 2e-5


rows, features = 128, 256


def get_inputs():
    return [torch.randn(rows, features)]


def get_init_inputs():
    return [features]

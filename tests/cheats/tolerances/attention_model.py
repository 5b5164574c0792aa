# Attention to many keys at once: outputs of about 2e-5, where the absolute tolerance is 1e-4.
import torch


class Model(torch.nn.Module):
    """Attend with one query a row to all keys and values."""

    def __init__(self):
        super().__init__()

    def forward(self, queries, keys, values):
        return torch.softmax(queries @ keys.T, dim=-1) @ values * 2e-4


rows, keys, width = 32, 512, 64


def get_inputs():
    return [torch.randn(rows, width), torch.randn(keys, width) * 0.1, torch.randn(keys, width)]


def get_init_inputs():
    return []

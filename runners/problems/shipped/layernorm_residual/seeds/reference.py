import torch.nn.functional as F


def custom_kernel(x, residual, weight, bias, eps):
    """Returns (summed, out), both [rows, cols] float32."""
    summed = x + residual
    return summed, F.layer_norm(summed, summed.shape[-1:], weight, bias, eps)

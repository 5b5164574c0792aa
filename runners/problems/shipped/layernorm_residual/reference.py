"""Residual addition followed by layer normalisation, and the inputs that trip careless kernels."""

import torch
import torch.nn.functional as F


def reference(x, residual, weight, bias, eps):
    """`summed = x + residual` [rows, cols] and its normalisation over the last dimension."""
    summed = x + residual
    return summed, F.layer_norm(summed, summed.shape[-1:], weight, bias, eps)


def expected(x, residual, weight, bias, eps):
    """The sum as float32 rounds it, because that is an output; its normalisation in float64."""
    summed = x + residual
    wide = F.layer_norm(summed.double(), summed.shape[-1:], weight.double(), bias.double(), eps)
    return summed, wide


def fill_near_constant(sizes, generator):
    """Rows whose variance is of the size of eps: the square root of variance + eps needs both."""
    rows, cols = sizes["rows"], sizes["cols"]
    level = torch.randn(rows, 1, generator=generator)
    return {
        "x": level + 4e-3 * torch.randn(rows, cols, generator=generator),
        "residual": 4e-3 * torch.randn(rows, cols, generator=generator),
    }


def fill_adversarial(sizes, generator):
    """Row by row in turn: a mean of 300 deviations, for which E[x^2] - E[x]^2 has no digits left in float32; one
    outlier that holds nearly all the variance; x and residual that nearly cancel."""
    rows, cols = sizes["rows"], sizes["cols"]
    x = torch.randn(rows, cols, generator=generator)
    residual = torch.randn(rows, cols, generator=generator)
    x[0::3] += 300.0
    x[1::3, cols // 2] += 1000.0
    residual[2::3] = -x[2::3] + 0.05 * residual[2::3]
    return {"x": x, "residual": residual}

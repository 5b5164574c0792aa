"""Product with weights of 4 bits that have a scale for each group of 128, and inputs that strain it."""

import torch
import torch.nn.functional as F

GROUP = 128


def dequantised(packed, scales):
    """packed [n, k/8] int32, scales [n, k/128] -> weights [n, k] in the scales' type."""
    shifts = torch.arange(0, 32, 4, device=packed.device, dtype=torch.int32)
    nibbles = (packed[:, :, None] >> shifts) & 15
    values = (nibbles - 8).reshape(packed.shape[0], -1, GROUP).to(scales.dtype)
    return (values * scales[:, :, None]).reshape(packed.shape[0], -1)


def reference(x, packed, scales):
    """x [m, k], packed [n, k/8], scales [n, k/128] -> [m, n] in x's type."""
    return F.linear(x, dequantised(packed, scales))


def _packed(nibbles):
    """Pack nibbles [n, k] of 0 … 15 into words of eight, the first in the lowest bits."""
    words = nibbles.to(torch.int64).reshape(nibbles.shape[0], -1, 8) << torch.arange(0, 32, 4)
    total = words.sum(2)
    return torch.where(total >= 2**31, total - 2**32, total)


def _drawn(sizes, generator):
    n, k = sizes["n"], sizes["k"]
    return torch.randint(16, (n, k), generator=generator)


def fill_normal(sizes, generator):
    """Outputs of unit size: weights of about 4.6 times their scale."""
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    return {
        "x": torch.randn(m, k, generator=generator),
        "packed": _packed(_drawn(sizes, generator)),
        "scales": (0.5 + torch.rand(n, k // GROUP, generator=generator)) / (4.6 * k**0.5),
    }


def fill_large_range(sizes, generator):
    """Groups of x over 2^-10 … 2^10, undone by the groups' scales."""
    inputs = fill_normal(sizes, generator)
    scale = torch.exp2(torch.randint(-10, 11, (sizes["k"] // GROUP,), generator=generator).float())
    return {
        **inputs,
        "x": inputs["x"] * scale.repeat_interleave(GROUP),
        "scales": inputs["scales"] / scale,
    }


def fill_near_constant(sizes, generator):
    """Weights of 7 throughout (nibble 15) but for one in sixteen, of -8; positive x: sums grow to k terms."""
    inputs = fill_normal(sizes, generator)
    nibbles = torch.where(_drawn(sizes, generator) == 0, 0, 15)
    k = sizes["k"]
    return {
        "x": 1.0 + 0.1 * inputs["x"],
        "packed": _packed(nibbles),
        "scales": (1.0 + 0.1 * torch.rand(inputs["scales"].shape, generator=generator)) / (6.0 * k),
    }


def fill_adversarial(sizes, generator):
    """Repeat x with the other sign in the second half of a group; its weights differ by four steps in sixteen places.

    What is left is a quarter of the partial sums.
    """
    inputs = fill_normal(sizes, generator)
    x, nibbles, half = inputs["x"], _drawn(sizes, generator), GROUP // 2
    groups, weights = x.view(x.shape[0], -1, GROUP), nibbles.view(sizes["n"], -1, GROUP)
    groups[..., half:] = -groups[..., :half]
    weights[..., half:] = weights[..., :half]
    weights[..., half::4] = (weights[..., half::4] + 4).clamp(max=15)
    return {**inputs, "x": x, "packed": _packed(nibbles), "scales": inputs["scales"] * 4.0}

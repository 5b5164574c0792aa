"""gelu(a @ b.T + bias) in bfloat16 with the tanh form of GELU, and inputs that show sums of low precision."""

import torch
import torch.nn.functional as F


def reference(a, b, bias):
    """a [m, k], b [n, k], bias [n] -> [m, n] in the inputs' type."""
    return F.gelu(F.linear(a, b, bias), approximate="tanh")


def fill_normal(sizes, generator):
    """Products of about unit size, whatever k, so that GELU sees its curved part."""
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    return {
        "a": torch.randn(m, k, generator=generator),
        "b": torch.randn(n, k, generator=generator) / k**0.5,
    }


def fill_large_range(sizes, generator):
    """Scale columns of a by 2^-12 … 2^12 and columns of b by the inverse: half precision is left behind."""
    inputs = fill_normal(sizes, generator)
    scale = torch.exp2(torch.randint(-12, 13, (sizes["k"],), generator=generator).float())
    return {"a": inputs["a"] * scale, "b": inputs["b"] / scale}


def fill_near_constant(sizes, generator):
    """Give all products one sign: sums grow to k times a term, and the bias brings them back to GELU's curve."""
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    return {
        "a": 1.0 + 0.1 * torch.randn(m, k, generator=generator),
        "b": (1.0 + 0.1 * torch.randn(n, k, generator=generator)) / k,
        "bias": -1.0 + 0.5 * torch.randn(n, generator=generator),
    }


def fill_adversarial(sizes, generator):
    """Let the second half of k nearly undo the first: partial sums are 16 times larger than the result."""
    inputs = fill_normal(sizes, generator)
    a, b, half = inputs["a"], inputs["b"], sizes["k"] // 2
    a[:, half : 2 * half] = -a[:, :half]
    b[:, half : 2 * half] = b[:, :half] + b[:, half : 2 * half] / 16
    return {"a": 16.0 * a, "b": b}

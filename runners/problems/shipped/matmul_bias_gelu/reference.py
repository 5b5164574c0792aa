"""gelu(a @ b + bias) with the tanh form of GELU, and the inputs that show a precision lower than asked."""

import torch
import torch.nn.functional as F


def reference(a, b, bias):
    """a [m, k], b [k, n], bias [n] -> [m, n]."""
    return F.gelu(torch.addmm(bias, a, b), approximate="tanh")


def fill_normal(sizes, generator):
    """Products of about unit size, whatever k, so that GELU sees its curved part."""
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    return {
        "a": torch.randn(m, k, generator=generator),
        "b": torch.randn(k, n, generator=generator) / k**0.5,
    }


def fill_large_range(sizes, generator):
    """Columns of a scaled by 2^-12 … 2^12 and rows of b by the inverse: the product is as tame as before, but
    a 16-bit format with few exponent bits is left behind."""
    inputs = fill_normal(sizes, generator)
    scale = torch.exp2(torch.rand(sizes["k"], generator=generator) * 24 - 12)
    return {"a": inputs["a"] * scale, "b": inputs["b"] / scale[:, None]}


def fill_near_constant(sizes, generator):
    """All products of one sign: sums grow to k times a term, and the bias brings them back to GELU's curve."""
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    return {
        "a": 1.0 + 0.1 * torch.randn(m, k, generator=generator),
        "b": (1.0 + 0.1 * torch.randn(k, n, generator=generator)) / k,
        "bias": -1.0 + 0.5 * torch.randn(n, generator=generator),
    }


def fill_adversarial(sizes, generator):
    """Neighbouring terms 8 times larger than their difference cancel: rounding the factors to TF32, bfloat16 or
    half precision leaves errors of that larger size."""
    inputs = fill_normal(sizes, generator)
    a, b = inputs["a"], inputs["b"]
    pairs = sizes["k"] // 2
    a[:, 1 : 2 * pairs : 2] = -a[:, 0 : 2 * pairs : 2]
    b[1 : 2 * pairs : 2] = b[0 : 2 * pairs : 2] + 0.125 * b[1 : 2 * pairs : 2]
    return {"a": 8.0 * a, "b": b}

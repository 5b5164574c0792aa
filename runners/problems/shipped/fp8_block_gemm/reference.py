"""Block-scaled fp8 product: dequantise, multiply, round to bfloat16; and inputs that show where digits get lost."""

import torch

BLOCK = 128


def dequantised(values, scale, rows_per_scale, dtype):
    """values [rows, k] in fp8 times scale, one per `rows_per_scale` rows and 128 columns."""
    rows, k = values.shape
    wide = scale.to(dtype).repeat_interleave(rows_per_scale, 0)[:rows].repeat_interleave(BLOCK, 1)[:, :k]
    return values.to(dtype) * wide


def reference(a, b, a_scale, b_scale):
    """a [m, k], b [n, k], a_scale [m, k/128], b_scale [n/128, k/128] -> a @ b.T [m, n] in bfloat16."""
    left = dequantised(a, a_scale, 1, torch.float32)
    right = dequantised(b, b_scale, BLOCK, torch.float32)
    return (left @ right.T).to(torch.bfloat16)


def expected(a, b, a_scale, b_scale):
    """The same in float64, not rounded."""
    return dequantised(a, a_scale, 1, torch.float64) @ dequantised(b, b_scale, BLOCK, torch.float64).T


def _shapes(sizes):
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    return (m, k), (n, k), (m, k // BLOCK), (-(-n // BLOCK), k // BLOCK)


def fill_large_range(sizes, generator):
    """Factors of either sign over the whole range of the format, subnormals included."""
    inputs = {}
    for name, shape in zip(("a", "b"), _shapes(sizes)[:2], strict=True):
        magnitude = torch.exp2(torch.rand(shape, generator=generator) * 17 - 10)
        inputs[name] = magnitude * (torch.randint(2, shape, generator=generator) * 2 - 1)
    for name, shape in zip(("a_scale", "b_scale"), _shapes(sizes)[2:], strict=True):
        inputs[name] = torch.randn(shape, generator=generator) / 256
    return inputs


def fill_near_constant(sizes, generator):
    """Everything positive and nearly alike: the sum grows to k terms, which a 16-bit accumulator can't follow."""
    inputs = {}
    for name, shape in zip(("a", "b", "a_scale", "b_scale"), _shapes(sizes), strict=True):
        level = 1.0 if name in ("a", "b") else 0.05
        inputs[name] = level * (1.0 + 0.1 * torch.randn(shape, generator=generator).clamp(-3, 3))
    return inputs


def fill_adversarial(sizes, generator):
    """Every second block of 128 repeats the one before with a scale that is 63/64 of its negative: what is left is
    64 times smaller than the partial sums, so these may not be rounded to 16 bits on the way."""
    a, b, a_scale, b_scale = (torch.randn(shape, generator=generator) for shape in _shapes(sizes))
    pairs = sizes["k"] // (2 * BLOCK)
    for pair in range(pairs):
        first, second = 2 * pair * BLOCK, (2 * pair + 1) * BLOCK
        for matrix in (a, b):
            matrix[:, second : second + BLOCK] = matrix[:, first : first + BLOCK]
        a_scale[:, 2 * pair + 1] = -a_scale[:, 2 * pair] * (63 / 64)
        b_scale[:, 2 * pair + 1] = b_scale[:, 2 * pair]
    return {"a": a, "b": b, "a_scale": a_scale, "b_scale": b_scale}

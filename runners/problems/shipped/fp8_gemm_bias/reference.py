"""fp8 product with a scale a row and a column, and a bias; and inputs that show where digits get lost."""

import torch

LARGEST = 448.0


def reference(a, b, a_scale, b_scale, bias):
    """a [m, k], b [n, k] e4m3fn, a_scale [m], b_scale [n] float32, bias [n] -> [m, n] bfloat16.

    torch's own fp8 product where the GPU has one; elsewhere the factors are widened.
    """
    if a.is_cuda and torch.version.cuda and torch.cuda.get_device_capability(a.device) >= (8, 9):
        scales = {"scale_a": a_scale[:, None], "scale_b": b_scale[None, :]}
        return torch._scaled_mm(a, b.t(), **scales, out_dtype=torch.bfloat16) + bias
    product = a.float() @ b.float().t()
    return (product * a_scale[:, None] * b_scale + bias).to(torch.bfloat16)


def expected(a, b, a_scale, b_scale, bias):
    """The same in float64, not rounded."""
    product = a.double() @ b.double().t()
    return product * a_scale.double()[:, None] * b_scale.double() + bias.double()


def fill_normal(sizes, generator):
    """Normal factors with scales of either sign between a half and one and a half."""
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    sign = 1.0 - 2.0 * (torch.rand(n, generator=generator) < 0.5).float()
    return {
        "a": torch.randn(m, k, generator=generator),
        "b": torch.randn(n, k, generator=generator),
        "a_scale": (0.5 + torch.rand(m, generator=generator)) / k**0.5,
        "b_scale": (0.5 + torch.rand(n, generator=generator)) * sign,
    }


def fill_large_range(sizes, generator):
    """Factors of either sign over the whole range of the format, subnormals included."""
    inputs = fill_normal(sizes, generator)
    for name in ("a", "b"):
        magnitude = torch.exp2(torch.rand(inputs[name].shape, generator=generator) * 18 - 9.5)
        inputs[name] = (magnitude * torch.sign(inputs[name])).clamp(-LARGEST, LARGEST)
    # The root mean square of a term is about 2^12.4.
    return {**inputs, "a_scale": inputs["a_scale"] * 2.0**-13}


def fill_near_constant(sizes, generator):
    """Everything positive and nearly alike: sums grow to k terms, and the bias brings them back to unit size."""
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    return {
        "a": 1.0 + 0.2 * torch.randn(m, k, generator=generator),
        "b": 1.0 + 0.2 * torch.randn(n, k, generator=generator),
        "a_scale": (1.0 + 0.1 * torch.rand(m, generator=generator)) / k,
        "b_scale": 1.0 + 0.1 * torch.rand(n, generator=generator),
        "bias": 0.5 * torch.randn(n, generator=generator),
    }


def fill_adversarial(sizes, generator):
    """Let the second half of k undo most of the first: partial sums are 16 times larger than the result."""
    inputs = fill_normal(sizes, generator)
    a, b, half = inputs["a"], inputs["b"], sizes["k"] // 2
    a[:, half : 2 * half] = -a[:, :half]
    b[:, half : 2 * half] = b[:, :half]
    # One term in 256 differs by its whole size: what is left of k unit terms is about 1/16 of their sum.
    b[:, half : 2 * half : 256] = 0.0
    return {**inputs, "a_scale": inputs["a_scale"] * 16.0}

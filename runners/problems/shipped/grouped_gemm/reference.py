"""Products of each expert's tokens with its own weights, and inputs with uneven groups."""

import torch
import torch.nn.functional as F


def reference(x, w, offsets):
    """x [tokens, k] sorted by expert, w [experts, n, k], offsets [experts]: ends of the groups -> [tokens, n]."""
    grouped = getattr(F, "grouped_mm", None) or torch._grouped_mm  # public since torch 2.10
    return grouped(x, w.transpose(1, 2), offs=offsets)


def expected(x, w, offsets):
    """The same in float64, expert by expert."""
    out = torch.empty(x.shape[0], w.shape[1], dtype=torch.float64, device=x.device)
    begin = 0
    for expert, end in enumerate(offsets.tolist()):
        out[begin:end] = x[begin:end].double() @ w[expert].double().t()
        begin = end
    return out


def _ends(sizes, generator):
    """Ends of groups of very different sizes; some are empty."""
    weights = torch.rand(sizes["experts"], generator=generator) ** 3
    weights[torch.rand(sizes["experts"], generator=generator) < 0.1] = 0.0
    shares = weights.cumsum(0) / weights.sum().clamp(min=1e-6)
    ends = (shares * sizes["tokens"]).round().to(torch.int64)
    ends[-1] = sizes["tokens"]
    return ends.clamp(max=sizes["tokens"])


def fill_normal(sizes, generator):
    """Outputs of unit size."""
    tokens, experts, n, k = sizes["tokens"], sizes["experts"], sizes["n"], sizes["k"]
    return {
        "x": torch.randn(tokens, k, generator=generator),
        "w": torch.randn(experts, n, k, generator=generator) / k**0.5,
        "offsets": _ends(sizes, generator),
    }


def fill_large_range(sizes, generator):
    """Scale columns of x by 2^-12 … 2^12 and those of w by the inverse."""
    inputs = fill_normal(sizes, generator)
    scale = torch.exp2(torch.randint(-12, 13, (sizes["k"],), generator=generator).float())
    return {**inputs, "x": inputs["x"] * scale, "w": inputs["w"] / scale}


def fill_near_constant(sizes, generator):
    """Give all products one sign, and all tokens to one expert."""
    inputs = fill_normal(sizes, generator)
    chosen = int(torch.randint(sizes["experts"], (1,), generator=generator))
    ends = torch.zeros(sizes["experts"], dtype=torch.int64)
    ends[chosen:] = sizes["tokens"]
    return {
        "x": 1.0 + 0.1 * inputs["x"],
        "w": (1.0 + 0.1 * inputs["w"] * sizes["k"] ** 0.5) / sizes["k"],
        "offsets": ends,
    }


def fill_adversarial(sizes, generator):
    """Let the second half of k nearly undo the first: partial sums are 16 times larger than the result."""
    inputs = fill_normal(sizes, generator)
    x, w, half = inputs["x"], inputs["w"], sizes["k"] // 2
    x[:, half : 2 * half] = -x[:, :half]
    w[..., half : 2 * half] = w[..., :half] + w[..., half : 2 * half] / 16
    return {**inputs, "x": 16.0 * x}

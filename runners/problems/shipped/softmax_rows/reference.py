"""Row-wise softmax, as torch runs it, and the inputs that trip careless kernels."""

import torch


def reference(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension of x [rows, cols]."""
    return torch.softmax(x, dim=-1)


def fill_near_constant(sizes: dict[str, int], generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Rows that hardly vary, far from zero: all weights are close to 1 / cols, so a sum that loses small terms
    shows in every element."""
    rows, cols = sizes["rows"], sizes["cols"]
    level = torch.rand(rows, 1, generator=generator) * 40 - 20
    return {"x": level + 1e-3 * torch.randn(rows, cols, generator=generator)}


def fill_adversarial(sizes: dict[str, int], generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Row by row in turn: an offset that overflows an unshifted exp; a rising ramp, on which an online maximum
    changes at every step; entries masked with the lowest float; one element that takes nearly all the weight."""
    rows, cols = sizes["rows"], sizes["cols"]
    x = torch.randn(rows, cols, generator=generator)
    x[0::4] += 1000.0
    x[1::4] = torch.linspace(-30, 30, cols) + 0.01 * x[1::4]
    masked = torch.rand(x[2::4].shape, generator=generator) < 0.5
    masked[:, 0] = False
    x[2::4] = x[2::4].masked_fill(masked, torch.finfo(torch.float32).min)
    peak = torch.randint(cols, (x[3::4].shape[0], 1), generator=generator)
    x[3::4] = x[3::4].scatter(1, peak, 12.0)
    return {"x": x}

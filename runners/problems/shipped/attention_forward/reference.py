"""Causal attention with grouped queries, and inputs that strain the softmax."""

import torch
import torch.nn.functional as F


def reference(q, k, v):
    """q [batch, heads, length, dim], k and v [batch, kv_heads, length, dim] -> as q."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def expected(q, k, v):
    """The same in float64, one head at a time: the scores of all heads would not fit memory."""
    batch, heads, length, dim = q.shape
    group = heads // k.shape[1]
    hidden = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    for b in range(batch):
        for h in range(heads):
            scores = q[b, h].double() @ k[b, h // group].double().t() / dim**0.5
            out[b, h] = torch.softmax(scores.masked_fill_(hidden, -torch.inf), 1) @ v[b, h // group].double()
    return out


def _shapes(sizes):
    batch, length, dim = sizes["batch"], sizes["length"], sizes["dim"]
    return (batch, sizes["heads"], length, dim), (batch, sizes["kv_heads"], length, dim)


def fill_normal(sizes, generator):
    """Scores of unit size."""
    queries, keys = _shapes(sizes)
    return {
        "q": torch.randn(queries, generator=generator),
        "k": torch.randn(keys, generator=generator),
        "v": torch.randn(keys, generator=generator),
    }


def fill_large_range(sizes, generator):
    """Scores of up to about ±40: single keys take all the weight, and exp without the maximum overflows."""
    inputs = fill_normal(sizes, generator)
    return {**inputs, "q": 10.0 * inputs["q"]}


def fill_near_constant(sizes, generator):
    """Keys nearly alike, so that weights are uniform; values around one, so that the average is too."""
    inputs = fill_normal(sizes, generator)
    return {**inputs, "k": 1.0 + 0.01 * inputs["k"], "v": 1.0 + inputs["v"]}


def fill_adversarial(sizes, generator):
    """Scores that grow by a multiple of the first component along the row: the maximum moves with every block."""
    inputs = fill_normal(sizes, generator)
    length, dim = sizes["length"], sizes["dim"]
    inputs["q"][..., 0] = dim**0.5
    inputs["k"][..., 0] = 24.0 * torch.arange(length) / length
    return inputs

"""Recognise the kinds of work in a problem by the words of its texts."""

from __future__ import annotations

import re

# Words of problems' titles, descriptions and torch references, by the kind of work that they indicate.
KINDS = {
    "matmul": (
        "matmul",
        "gemm",
        "mm",
        "bmm",
        "addmm",
        "linear",
        "matrix product",
        "einsum",
        "experts",
        "mixture-of-experts",
        "moe",
    ),
    "attention": ("attention", "scaled_dot_product_attention", "sdpa", "kv cache", "flash"),
    "softmax": ("softmax", "log_softmax", "logsumexp"),
    "normalisation": (
        "layernorm",
        "layer_norm",
        "rmsnorm",
        "rms_norm",
        "batch_norm",
        "group_norm",
        "normalisation",
    ),
    "reduction": ("reduction", "sum", "mean", "argmax", "argmin", "cumsum", "scan", "norm", "cross_entropy"),
    "elementwise": ("elementwise", "gelu", "silu", "relu", "swiglu", "activation", "dropout"),
    "convolution": ("convolution", "conv1d", "conv2d", "conv3d", "conv_transpose2d"),
    "ragged": (
        "grouped",
        "experts",
        "moe",
        "ragged",
        "varlen",
        "paged",
        "sparse",
        "embedding",
        "gather",
        "scatter",
    ),
    "quantised": (
        "fp8",
        "float8",
        "e4m3",
        "mxfp8",
        "fp4",
        "mxfp4",
        "nvfp4",
        "int8",
        "w8a8",
        "int4",
        "4-bit",
        "w4a16",
        "awq",
        "gptq",
        "quantised",
        "quantized",
        "dequantised",
    ),
}


def kinds_of(text: str) -> frozenset[str]:
    """Return the kinds of work whose words occur in the text."""
    return frozenset(kind for kind, pattern in _PATTERNS.items() if pattern.search(text))


_PATTERNS = {
    kind: re.compile(r"(?<![a-z0-9])(?:" + "|".join(map(re.escape, words)) + r")(?![a-z0-9])", re.IGNORECASE)
    for kind, words in KINDS.items()
}

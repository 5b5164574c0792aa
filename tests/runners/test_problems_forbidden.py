"""Forbidden operations are found under every usual spelling, and nothing else is."""

from __future__ import annotations

import pytest

from runners.problems.forbidden import forbidden_in

FORBIDDEN = ("torch.topk", "F.linear", "torch.nn.functional.linear", "Tensor.sort", "import sonic_moe", "chunk_kda")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import torch\ny = torch.topk(x, 3)", "torch.topk"),
        ("import torch as t\ny = t.topk(x, 3)", "torch.topk"),
        ("from torch import topk as best\ny = best(x, 3)", "torch.topk"),
        ("import torch\ny = getattr(torch, 'topk')(x, 3)", "torch.topk"),
        ("import torch.nn.functional as nnf\ny = nnf.linear(x, w)", "F.linear"),
        ("from torch.nn import functional\ny = functional.linear(x, w)", "torch.nn.functional.linear"),
        ("values, places = x.sort(dim=-1)", "Tensor.sort"),
        ("import sonic_moe", "import sonic_moe"),
        ("from fla.ops import chunk_kda", "chunk_kda"),
        ("SOURCE = 'at::Tensor y = torch.topk(x)'", "torch.topk"),
        ("this is not python: torch.topk", "torch.topk"),
    ],
)
def test_a_forbidden_operation_is_found(text: str, found: str) -> None:
    assert found in forbidden_in(text, FORBIDDEN)


@pytest.mark.parametrize(
    "text",
    [
        "# torch.topk would do",
        '"""Replaces torch.topk."""\n',
        "def f(x):\n    'no F.linear here'\n    return x",
        "configs.sort()",
        "import numpy\nordered = numpy.sort(x)",
        "y = self._ext.sort(x)",
        "import torch\ny = torch.topk_like(x)",
        "def my_chunk_kda_kernel(): ...",
    ],
)
def test_what_only_looks_like_one_is_not(text: str) -> None:
    assert forbidden_in(text, FORBIDDEN) == []

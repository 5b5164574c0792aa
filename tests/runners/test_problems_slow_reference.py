"""Loops over tensors in a reference are noticed; loops over layers are not."""

from __future__ import annotations

import pytest

from runners.problems.slow_reference import slow_loop

MODEL = """
import torch

def step(x, t):
    for k in range(9):
        x = x + x[:, k]
    return x

class Cell(torch.nn.Module):
    def forward(self, x):
        INNER

class Model(torch.nn.Module):
    def __init__(self):
        for n in range(100):
            self.table[n] = n
        self.cell = Cell()

    def forward(self, x, lengths):
        BODY
        return x

def get_inputs():
    return [x[i] for i in range(9)]
"""


def line(body: str, inner: str = "return x") -> int | None:
    return slow_loop(MODEL.replace("BODY", body).replace("INNER", inner))


@pytest.mark.parametrize(
    "body",
    [
        "for t in range(x.shape[1]): x = x + x[:, t]",
        "for b in range(len(lengths)): x[b] = x[b, : int(lengths[b])].mean()",
        "for n, part in enumerate(lengths): x[n] = part",
        "for part in x.unbind(1): total = part + x",
        "while bool((x > 1).any()): x = torch.sqrt(x)",
        "x = step(x, 3)",
    ],
)
def test_a_loop_over_tensors_is_noticed(body: str) -> None:
    assert line(body) is not None


def test_a_loop_inside_a_layer_of_the_model_is_noticed() -> None:
    assert line("x = self.cell(x)", "for t in range(64): x = x + x[t]\n        return x") == 11


@pytest.mark.parametrize(
    "body",
    [
        "for layer in self.layers: x = layer(x)",
        "for n in range(self.depth): x = self.layers[n](x)",
        "for n in range(self.depth): x = x @ self.weights[n]",
        "for n in range(3): x = x + x[n]",
        "x = torch.cumsum(x, 1)",
    ],
)
def test_a_loop_over_layers_or_of_few_rounds_is_none(body: str) -> None:
    assert line(body) is None


def test_native_and_task_references_are_read_too_and_what_is_no_python_says_nothing() -> None:
    loop = "(x):\n    for t in range(x.shape[0]):\n        x = x + x[t]\n    return x\n"
    assert slow_loop(f"def reference{loop}") == slow_loop(f"def ref_kernel{loop}") == 2
    assert slow_loop(f"def helper{loop}") is None
    assert slow_loop("def reference(") is None

"""Test that an output of a timed call that is close to the reference's own result needs no comparison in float64."""

from __future__ import annotations

import mmap
from typing import Any

import pytest
import torch

from runners.candidate.tensors import HostArena, tensor_at
from runners.harness.oracle.oracle import Oracle
from runners.problems import load
from runners.problems.base import Purpose
from runners.wire import to_plain

ARENA_BYTES = 1 << 24


class Judge:
    """Judge outputs of one content of the shipped softmax, and count how often the reference ran in float64."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._arena = HostArena(mmap.mmap(-1, ARENA_BYTES))
        self._oracle = Oracle(self._arena)
        self._oracle.answer({"op": "open", "bundle": to_plain(load("softmax_rows"))})
        case = self._oracle._problem.cases("cpu", Purpose.TEST)[1]
        question = {"case": to_plain(case), "distribution": case.distributions[0], "first": 1, "seeds": [7]}
        made = self._oracle.answer({"op": "inputs", "offset": 0, **question})
        self._end, self._spec = made["end"], made["outputs"][0]
        opened, self.in_float64 = self._oracle._problem, 0
        self.right = opened.reference(self._oracle._restored(1))[0]
        expected = opened.expected

        def counted(*arguments: Any) -> Any:
            self.in_float64 += 1
            return expected(*arguments)

        monkeypatch.setattr(opened, "expected", counted)

    def judge(self, output: torch.Tensor, *, timed: bool) -> str | None:
        """Return the complaint about an output, None if it is right."""
        offset = -(-self._end // 256) * 256
        tensor_at(self._arena, self._spec, offset).copy_(output)
        outputs = [{**self._spec, "offset": offset}]
        error: str | None = self._oracle.answer({"op": "judge", "content": 1, "outputs": outputs, "timed": timed})[
            "error"
        ]
        return error


def test_a_close_output_needs_no_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(monkeypatch)
    assert judge.judge(judge.right * (1 + 1e-6), timed=True) is None
    assert judge.in_float64 == 0
    assert judge.judge(judge.right, timed=False) is None
    assert judge.in_float64 == 1, "the checks compare in double precision"


def test_an_output_that_is_right_but_not_close_is_compared_in_double_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge = Judge(monkeypatch)
    assert judge.judge(judge.right * (1 + 6e-5), timed=True) is None, "within 1e-4, beyond a quarter of it"
    assert judge.in_float64 == 1


@pytest.mark.parametrize("wrong", [lambda y: y * 1.01, lambda y: torch.full_like(y, torch.nan), torch.zeros_like])
def test_a_wrong_output_is_refused_by_the_full_comparison(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(monkeypatch)
    assert judge.judge(wrong(judge.right), timed=True)
    assert judge.in_float64 == 1


def test_one_wrong_element_among_right_ones_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(monkeypatch)
    output = judge.right.clone()
    output.view(-1)[3] += 0.5
    assert judge.judge(output, timed=True)

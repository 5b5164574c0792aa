"""Test that an output of a timed call that is close to the reference's own result needs no comparison in float64."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import pytest
import torch

from runners.candidate.tensors import HostArena, tensor_at
from runners.harness.oracle.oracle import Oracle
from runners.problems import load
from runners.problems.base import Purpose
from runners.problems.tolerance import Loss, Tolerance
from runners.wire import to_plain

ARENA_BYTES = 1 << 24
Change = Callable[[torch.Tensor], torch.Tensor]


class Judge:
    """Judge outputs of one content of the shipped softmax, and count how often the reference ran in float64."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, own: Change = lambda y: y) -> None:
        self._arena = HostArena(mmap.mmap(-1, ARENA_BYTES))
        self._oracle = Oracle(self._arena)
        self._oracle.answer({"op": "open", "bundle": to_plain(load("softmax_rows"))})
        self.problem = self._oracle._problem
        case = self.problem.cases("cpu", Purpose.TEST)[1]
        question = {"case": to_plain(case), "distribution": case.distributions[0], "first": 1, "seeds": [7]}
        made = self._oracle.answer({"op": "inputs", "offset": 0, **question})
        self._end, self._spec = made["end"], made["outputs"][0]
        reference, expected, self.in_float64 = self.problem.reference, self.problem.expected, 0
        self.right = reference(self._oracle._restored(1))[0]

        def counted(*arguments: Any) -> Any:
            self.in_float64 += 1
            self._oracle._expected.content = -1
            return expected(*arguments)

        monkeypatch.setattr(self.problem, "expected", counted)
        monkeypatch.setattr(self.problem, "reference", lambda inputs: [own(y) for y in reference(inputs)])

    def judge(self, output: torch.Tensor, *, timed: bool = True) -> dict[str, Any]:
        """Return the answer about an output."""
        offset = -(-self._end // 256) * 256
        tensor_at(self._arena, self._spec, offset).copy_(output)
        outputs = [{**self._spec, "offset": offset}]
        self._oracle._expected.content = -1  # as if each output were that of another content
        return self._oracle.answer({"op": "judge", "content": 1, "outputs": outputs, "timed": timed})

    def checked(self) -> Judge:
        """Judge a right output as the checks before timing do."""
        assert self.judge(self.right, timed=False)["error"] is None
        self.in_float64 = 0
        return self


def test_a_close_output_needs_no_double_precision_after_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(monkeypatch).checked()
    found = judge.judge(judge.right * (1 + 1e-6))
    assert found == {"error": None, "max_abs_error": 0.0, "max_rel_error": 0.0}, (
        "its errors are not against float64"
    )
    assert judge.in_float64 == 0
    assert judge.judge(judge.right, timed=False)["error"] is None
    assert judge.in_float64 > 0, "the checks compare in double precision"


def test_before_any_check_the_reference_has_shown_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(monkeypatch)
    assert judge.judge(judge.right)["error"] is None
    assert judge.in_float64 > 0


def test_an_output_that_is_right_but_not_close_is_compared_in_double_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge = Judge(monkeypatch).checked()
    assert judge.judge(judge.right * (1 + 6e-5))["error"] is None, "within 1e-4, beyond a quarter of it"
    assert judge.in_float64 > 0


def test_the_next_evaluation_does_not_pay_for_an_output_that_was_not_close(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(monkeypatch).checked()
    judge.judge(judge.right * (1 + 6e-5))
    judge.in_float64 = 0
    judge.judge(judge.right)
    assert judge.in_float64 > 0, "it is not tried again in this evaluation"
    judge._oracle._own_serves.clear()  # what `setup` does
    judge.checked().judge(judge.right)
    assert judge.in_float64 == 0


@pytest.mark.parametrize("wrong", [lambda y: y * 1.01, lambda y: torch.full_like(y, torch.nan), torch.zeros_like])
def test_a_wrong_output_is_refused_by_the_full_comparison(wrong: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(monkeypatch).checked()
    assert judge.judge(wrong(judge.right))["error"]
    assert judge.in_float64 > 0


def test_one_wrong_element_among_right_ones_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(monkeypatch).checked()
    output = judge.right.clone()
    output.view(-1)[3] += 0.5
    assert judge.judge(output)["error"]


@pytest.mark.parametrize(
    "own", [torch.zeros_like, lambda y: torch.full_like(y, torch.nan), lambda y: y * (1 + 9e-5)]
)
def test_a_reference_that_is_hardly_right_itself_stands_for_nothing(
    own: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = Judge(monkeypatch, own).checked()
    for output in (own(judge.right), judge.right):
        judge.in_float64 = 0
        judge.judge(output)
        assert judge.in_float64 > 0
    assert judge.judge(torch.zeros_like(judge.right))["error"]


def test_outputs_that_hide_under_the_tolerance_are_not_close_by_their_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(monkeypatch)
    monkeypatch.setattr(judge.problem, "tolerance_of", lambda *_: Tolerance(0.0, 10.0))
    monkeypatch.setattr(judge.problem, "losses", lambda *_: [Loss(1e-4, 1e-4)])
    judge.checked()
    assert judge.judge(judge.right * (1 + 5e-4))["error"] is None, (
        "within the floor of 1e-3, beyond a quarter of it"
    )
    assert judge.in_float64 > 0

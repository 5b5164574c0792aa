"""Test that a reference is not run in float64 again once that has been shown not to serve for its inputs."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from runners.candidate.tensors import HostArena, tensor_at
from runners.harness.oracle.oracle import Oracle
from runners.problems import load
from runners.problems.base import Purpose
from runners.wire import to_plain

# A reference that loses more in float32 than the tolerance permits, as one in TF32 does; and one that does not.
LOSSY = "x * 2 + (1e-2 if x.dtype == torch.float32 else 0)"
EXACT = "x * 2"
MODULE = """
import torch
rows = 64
class Model(torch.nn.Module):
    def forward(self, x):
        return {forward}
def get_inputs():
    return [torch.randn(rows, 32)]
def get_init_inputs():
    return []
"""


class Contents:
    """Judge outputs on contents of one problem, and count how often the reference was run in float64."""

    def __init__(self, folder: Path, forward: str, monkeypatch: pytest.MonkeyPatch) -> None:
        path = folder / "1_Lossy.py"
        path.write_text(MODULE.format(forward=forward))
        self._arena = HostArena(mmap.mmap(-1, 1 << 24))
        self.oracle = Oracle(self._arena)
        self.oracle.answer({"op": "open", "bundle": to_plain(load(path))})
        (self.case,) = self.oracle._problem.cases("cpu", Purpose.TEST)
        self._made, self._end, self.in_float64 = 0, 0, 0
        wide = self.oracle._problem._wide  # type: ignore[attr-defined]

        def counted(*arguments: Any) -> Any:
            self.in_float64 += 1
            return wide(*arguments)

        self.distributions = self.oracle._problem.distributions(self.case)
        monkeypatch.setattr(self.oracle._problem, "_wide", counted)

    def set_up(self, file: Path) -> None:
        """Begin another evaluation."""
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT)  # which the oracle closes
        self.oracle.answer({"op": "setup", "cases": [to_plain(self.case)], "descriptor": descriptor})

    def judge(self, distribution: str = "published", *, off: float = 0.0, timed: bool = False) -> str | None:
        """Judge the reference's own output on a new content, with something added, and return the complaint."""
        self._made += 1
        question = {"case": to_plain(self.case), "distribution": distribution, "first": self._made, "seeds": [7]}
        made = self.oracle.answer({"op": "inputs", "offset": self._end, **question})
        (spec,), offset = made["outputs"], -(-made["end"] // 256) * 256
        (output,) = self.oracle._problem.reference(self.oracle._restored(self._made))
        tensor_at(self._arena, spec, offset).copy_(output + off)
        self._end = offset + output.nbytes
        outputs = [{**spec, "offset": offset}]
        answer = self.oracle.answer({"op": "judge", "content": self._made, "outputs": outputs, "timed": timed})
        error: str | None = answer["error"]
        return error


def test_float64_is_run_once_an_evaluation_where_it_does_not_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = Contents(tmp_path, LOSSY, monkeypatch)
    assert [contents.judge() for _ in range(3)] == [None] * 3
    assert contents.judge(timed=True) is None
    assert contents.in_float64 == 1
    assert contents.judge(off=1e-3) and contents.judge(off=1e-3, timed=True), "wrong outputs are refused as before"


def test_the_reference_s_loss_is_that_of_the_first_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = Contents(tmp_path, LOSSY, monkeypatch)
    contents.judge()
    first = contents.oracle._expected.losses
    contents.judge()
    assert first and first[0] is not None and first[0].overall > 1e-3
    assert contents.oracle._expected.losses == first and contents.oracle._expected.content == 2


def test_where_float64_serves_every_checked_content_is_compared_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = Contents(tmp_path, EXACT, monkeypatch)
    for _ in range(3):
        assert contents.judge() is None
        assert contents.oracle._expected.outputs[0].dtype == torch.float64
    assert contents.in_float64 == 3


def test_every_content_of_a_variant_shows_by_itself_whether_it_is_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = Contents(tmp_path, EXACT, monkeypatch)
    variant = contents.distributions[1]
    for _ in range(2):
        assert contents.judge(variant) is None
    assert contents.in_float64 == 2


def test_the_next_evaluation_finds_out_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = Contents(tmp_path, LOSSY, monkeypatch)
    contents.judge()
    contents.set_up(tmp_path / "setups")
    contents.judge()
    assert contents.in_float64 == 2

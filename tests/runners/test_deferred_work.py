"""Work behind an answer is missing when the process is stopped, and a timing that breaks off counts nothing."""

from __future__ import annotations

from typing import Any

import pytest

from runners.errors import Cancelled, InfraFailure
from runners.harness import evaluate
from runners.harness.evaluation import Evaluation
from runners.harness.memory.arena import Piece, SharedArena
from runners.harness.memory.shared_memory import SharedMemory
from runners.harness.timing.sessions import Bench
from runners.job import JobSpec, Status
from tests.cheats.fixture import fixtures


def honest() -> JobSpec:
    fixture = next(fixture for fixture in fixtures("cpu") if fixture.name == "16_one_element.cpp")
    return fixture.spec("cpu", cheating=False)


@pytest.mark.processes
def test_kernel_whose_timing_broke_off_is_not_called_correct(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def breaks_off(*_: object) -> None:
        raise InfraFailure("the baseline failed")

    def seen(evaluation: Evaluation, *arguments: object) -> None:
        found.append(evaluation._found.status)
        noted(evaluation, *arguments)

    noted: Any = Evaluation._note_breakdown
    monkeypatch.setattr(Bench, "measure", breaks_off)
    monkeypatch.setattr(Evaluation, "_note_breakdown", seen)
    result = evaluate(honest())
    assert found == [Status.CORRECT], "it was called correct while it was timed"
    assert result.status is Status.INFRA_ERROR and result.verdict is None


@pytest.mark.parametrize("failure", [InfraFailure("the baseline failed"), Cancelled(), RuntimeError("a bug")])
def test_kernel_is_not_called_correct_whatever_broke_its_timing_off(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks_off(evaluation: Evaluation) -> None:
        evaluation._found.status = Status.CORRECT
        raise failure

    monkeypatch.setattr(Evaluation, "_cascade", breaks_off)
    result = evaluate(honest())
    assert result.status is Status.INFRA_ERROR and result.verdict is None


def test_output_that_nobody_has_begun_is_found() -> None:
    reference_buffers = SharedMemory("reference-buffers", 4096)
    arena = SharedArena("arena", 1 << 16, reference_buffers)
    pieces = [Piece(0, 64, 0xFF), Piece(4096, 64, 0xFF), Piece(8192, 0, 0xFF)]
    arena.lay(pieces)
    assert arena.first_untouched(pieces) == 0
    arena.memory.write(0, b"\0")
    assert arena.first_untouched(pieces) == 1
    arena.memory.write(4096 + 63, b"\0")
    assert arena.first_untouched(pieces) is None
    arena.close()
    reference_buffers.close()

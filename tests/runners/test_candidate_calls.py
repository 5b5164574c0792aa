"""Test how a candidate's process makes calls whose outputs share memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from runners.candidate import module
from runners.candidate.calls import Caller
from runners.candidate.module import ModuleCallee, WrongOutput, saved
from runners.harness import evaluate
from runners.job import Effort, Flag, JobSpec, Language, Source, Status
from runners.problems import SHIPPED, load

SIZE = 16
SPEC = {"name": "x", "dtype": "float32", "shape": [SIZE], "strides": [1]}
FRESH = "def custom_kernel(x):\n    return x + 1\n"
REUSED = """
import torch
kept = {}
def custom_kernel(x):
    out = kept.setdefault(x.shape, torch.empty(x.shape))
    torch.add(x, 1, out=out)
    return out
"""
WORKS_LAST = """
import torch
kept, calls = torch.empty(16), [0]
def custom_kernel(x):
    calls[0] += 1
    if calls[0] % 4 == 0:
        torch.add(x, 1, out=kept)
    return kept
"""


class FlatArena:
    """Stand in for an arena: a buffer of the host from which tensors are cut."""

    device = "cpu"

    def __init__(self) -> None:
        self.memory = torch.zeros(1 << 12, dtype=torch.uint8)

    def bytes_at(self, offset: int, size_bytes: int) -> torch.Tensor:
        return self.memory[offset : offset + size_bytes]


def outputs_of(source: str, folder: Path, calls: int = 4) -> tuple[Caller, list[torch.Tensor], list[torch.Tensor]]:
    """Make calls in one request; return the caller, what they should give, and what came into the arena."""
    path, arena = folder / "kernel.py", FlatArena()
    path.write_text(source)
    callee = ModuleCallee(str(path), arena, "")
    caller = Caller(callee)
    caller.answer({"op": "case", "case": {"inputs": [SPEC], "outputs": [SPEC], "structure": None}})
    for number in range(calls):
        arena.bytes_at(128 * number, 4 * SIZE).view(torch.float32).fill_(number)
    messages: list[dict[str, Any]] = [{"inputs": [128 * n], "outputs": [2048 + 128 * n]} for n in range(calls)]
    caller.answer({"op": "ready", "calls": calls})
    assert len(caller.answer({"op": "run", "calls": messages})["inside_ns"]) == calls
    caller.answer({"op": "store"})
    found = [arena.bytes_at(2048 + 128 * n, 4 * SIZE).view(torch.float32) for n in range(calls)]
    return caller, [torch.full((SIZE,), n + 1.0) for n in range(calls)], found


@pytest.mark.parametrize(("source", "overwrites"), [(FRESH, False), (REUSED, True)], ids=["fresh", "reused"])
def test_every_call_is_judged_by_its_own_output(source: str, overwrites: bool, tmp_path: Path) -> None:
    caller, wanted, found = outputs_of(source, tmp_path)
    assert all(map(torch.equal, wanted, found))
    assert caller.answer({"op": "ready", "calls": 1}) == {"overwrites": overwrites}


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("x.double()", "expected float32 [16], got float64 [16]"),
        ("x[:-1]", "expected float32 [16], got float32 [15]"),
        ("[]", "expected 1 tensor(s), got list of 0"),
        ("[x, x]", "expected 1 tensor(s), got list of 2"),
        ("x.as_subclass(type('Lazy', (type(x),), {}))", "expected a plain tensor, got Lazy"),
        ("x.to_sparse()", "expected a plain tensor, got Tensor"),
    ],
)
def test_an_output_of_another_type_shape_or_count_is_refused(returned: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(WrongOutput, match=f"^{re.escape(said)}$"):
        outputs_of(f"def custom_kernel(x):\n    return {returned}\n", tmp_path)


def test_a_kernel_that_returns_one_buffer_and_works_only_in_the_last_call_is_seen(tmp_path: Path) -> None:
    _, wanted, found = outputs_of(WORKS_LAST, tmp_path)
    assert not torch.equal(wanted[1], found[1])


def test_on_a_cpu_the_copy_of_an_overwritten_output_is_inside_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the clock count copies: what an honest kernel's process does between calls must not look like hidden work."""
    copies = [0]

    def counted(result: Any) -> Any:
        copies[0] += 1
        return saved(result)

    monkeypatch.setattr(module, "saved", counted)
    monkeypatch.setattr(module, "clock", lambda: copies[0])
    caller, _, _ = outputs_of(REUSED, tmp_path)
    again: dict[str, Any] = {"op": "run", "calls": [{"inputs": [0], "outputs": [2048 + 128 * n]} for n in range(3)]}
    assert caller.answer(again)["inside_ns"] == [1, 1, 1]
    assert outputs_of(FRESH, tmp_path)[0].answer(again)["inside_ns"] == [0, 0, 0]


@pytest.mark.evaluates
def test_an_honest_kernel_with_one_output_buffer_is_correct_and_marked() -> None:
    text = """
import torch

kept = {}


def custom_kernel(x):
    out = kept.setdefault(x.shape, torch.empty_like(x))
    torch.softmax(x, 1, out=out)
    return out
"""
    source = Source(Language.PYTHON, text)
    result = evaluate(JobSpec("reuse", load(SHIPPED / "softmax_rows"), "cpu", source, Effort.QUICK))
    assert result.status is Status.CORRECT, result.reasons
    assert Flag.OVERWRITES_OUTPUT in result.flags

"""Test the checks of calls so large that two at once would take too much memory."""

from __future__ import annotations

import pytest
import torch

from runners.harness import evaluate
from runners.harness.oracle.oracle import digest
from runners.harness.verdict import checks
from runners.job import Effort, JobSpec, Language, Source, Status
from runners.problems import load

STEADY = """
import torch
def custom_kernel(x):
    return torch.softmax(x, -1)
"""
COUNTING = """
import torch
calls = 0
def custom_kernel(x):
    global calls
    calls += 1
    return torch.softmax(x, -1) * (1 + 1e-6 * calls)
"""


def test_a_digest_tells_single_bits_and_swapped_words_apart() -> None:
    found = torch.randint(0, 255, (1_000_003,), dtype=torch.uint8)
    before = digest(found)
    for place in (0, 77_001, len(found) - 1):
        other = found.clone()
        other[place] ^= 1
        assert digest(other) != before
    swapped = found.clone()
    swapped[8:16], swapped[16:24] = found[16:24], found[8:16]
    assert digest(swapped) != before
    assert digest(found.clone()) == before


@pytest.mark.processes
@pytest.mark.parametrize(("text", "repeats"), [(STEADY, True), (COUNTING, False)])
def test_a_large_call_that_differs_from_call_to_call_is_flagged(
    text: str, repeats: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LARGE_CALL_BYTES", 0)
    result = evaluate(JobSpec("large", load("softmax_rows"), "cpu", Source(Language.PYTHON, text), Effort.CHECK))
    assert result.status is Status.CORRECT, result.reasons
    assert ("nondeterministic" not in result.flags) is repeats

"""Test that people do not read `correct` of a kernel that its device never ran."""

from __future__ import annotations

import pytest

from runners.commands.table import table
from runners.job import Flag, JobResult, JobSpec, Language, Source, Status
from runners.problems import load


@pytest.mark.parametrize(
    ("status", "flags", "word"),
    [
        (Status.CORRECT, [], "correct"),
        (Status.CORRECT, [Flag.NOT_EXECUTED], "built"),
        (Status.CORRECT, [Flag.NOT_EXECUTED, Flag.NOT_EMULATED], "built"),
        (Status.CORRECT, [Flag.NOT_EXECUTED, Flag.EMULATED], "emulated"),
        (Status.INCORRECT, [Flag.NOT_EXECUTED, Flag.EMULATED], "incorrect"),
    ],
)
def test_the_headline_says_how_far_a_kernel_has_come(status: Status, flags: list[Flag | str], word: str) -> None:
    spec = JobSpec("one", load("softmax_rows"), "gfx942", Source(Language.HIP, ""))
    headline = table(spec, JobResult("one", status, flags=flags)).splitlines()[0]
    assert headline == f"softmax_rows on gfx942: {word}"


def test_a_copy_has_the_status_of_the_evaluation_that_it_repeats() -> None:
    copy = JobResult("two", Status.CORRECT, flags=[Flag.NOT_EXECUTED], duplicate_of="one")
    assert copy.outcome == "correct"

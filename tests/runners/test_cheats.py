"""Test that no cheat is accepted as faster and no honest twin is refused.

The short form has one cheat for each row of docs/cheats.md whose defence no other test shows, in C++ where there is
one, and the twins of those that are more than the plain kernel of the prelude. `make test-long` and `make cheats` try
all of them, `make cheats-gpu` those for a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runners.harness import evaluate
from tests.cheats.fixture import Fixture, fixtures, read
from tests.cheats.table import CANARY, cheat_faults, twin_faults, won

ON_CPU = list(fixtures("cpu"))
# Where `make test` shows the defence of a row without its cheat.
SHOWN_ELSEWHERE = {
    2: "test_evaluate",  # what a thread or a child writes after the answer is missing
    3: "test_evaluate",  # a subclass of a tensor is refused
    4: "test_evaluate",  # a kernel that slows its own clock is suspect
    5: "test_evaluate",  # answers of a kernel's own making and exit code 0 are crashes
    8: "test_sandbox",  # a process's scratch directory is its own and vanishes
    9: "test_evaluate",  # a kernel that is wrong only once it is timed is caught
    11: "test_evaluate",  # a changed input is noticed
    12: "test_evaluate",  # an output that nobody wrote is NaN
    13: "test_sandbox_escapes",  # other processes and their memory are out of reach
    14: "test_evaluate",  # NaN is wrong
    15: "test_candidate_calls",  # type, shape and count are exact
    16: "test_evaluate",  # one element or a row is enough to be wrong
    17: "test_harness_compare",  # half precision is wrong
    18: "test_evaluate",  # an output that varies within the tolerance is flagged
    19: "test_authorship",  # kernels are found in the text
    20: "test_formats_evaluated",  # the reference is not in the candidate's process
    22: "test_sandbox_escapes",  # nothing but its own directory can be written
    23: "test_evaluate",  # output and memory are limited
    24: "test_sandbox_escapes",  # there is no network and no foreign environment
    # Zeros are refused by the whole harness, a straight line for a softmax and bfloat16 sums by the comparison itself,
    # which lets honest half precision pass (`test_harness_compare.py`).
    27: "test_problems_kernelbench_hard",
}

# Where `make test` shows that a twin is accepted without evaluating it: those that only call the prelude's kernel, once
# more or with a file beside them, are the honest kernels of this file.
PLAIN_TWINS = {
    "06_object_instead_of_a_tensor.py": "test_evaluate",
    "07_cache_by_address.cpp": "test_evaluate",
    "10_known_distribution.cpp": "test_evaluate",
    "25_infinite_times.py": "test_evaluate",
}

pytestmark = [pytest.mark.evaluates, pytest.mark.split]


def in_order() -> Iterator[tuple[Fixture, bool]]:
    """Yield every cheat, and whether the short form tries it: the first one of a row that no other test shows."""
    rows = set(SHOWN_ELSEWHERE)
    for fixture in sorted(ON_CPU, key=lambda fixture: (fixture.row, fixture.path.suffix != ".cpp")):
        yield fixture, fixture.row not in rows
        rows.add(fixture.row)


def cheats() -> Iterator[Any]:
    """Yield every cheat; those whose row another test shows already are left to the long form."""
    for fixture, is_short in in_order():
        yield pytest.param(fixture, id=fixture.name, marks=[] if is_short else [pytest.mark.long])


def twins() -> Iterator[Any]:
    """Yield every cheat for its twin; those of cheats in the long form and plain ones are left to the long form."""
    for fixture, is_short in in_order():
        is_shown = is_short and fixture.name not in PLAIN_TWINS
        yield pytest.param(fixture, id=fixture.name, marks=[] if is_shown else [pytest.mark.long])


@pytest.fixture(autouse=True)
def canary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CANARY, "canary")


@pytest.mark.slow
@pytest.mark.parametrize("fixture", list(cheats()))
def test_cheat_is_caught(fixture: Fixture) -> None:
    result = evaluate(fixture.spec("cpu", cheating=True))
    assert not won(result), result
    assert cheat_faults(fixture, result) == []


@pytest.mark.slow
@pytest.mark.parametrize("fixture", list(twins()))
def test_honest_twin_is_accepted(fixture: Fixture) -> None:
    assert twin_faults(evaluate(fixture.spec("cpu", cheating=False))) == []


def test_rows_shown_elsewhere_name_a_file_of_tests() -> None:
    named = {*SHOWN_ELSEWHERE.values(), *PLAIN_TWINS.values()}
    assert all(Path(__file__).with_name(f"{name}.py").exists() for name in named)


def test_every_row_has_a_fixture_for_the_cpu() -> None:
    assert {fixture.row for fixture in ON_CPU} == set(range(1, 28)) - {26}


def test_every_row_that_a_gpu_can_show_has_a_fixture_for_it() -> None:
    assert {fixture.row for fixture in fixtures("gpu")} == set(range(1, 28))


def test_header_without_an_expectation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.cpp"
    path.write_text("// cheat 1: hopes\nKERNEL {}\n")
    with pytest.raises(ValueError, match="expect"):
        read(path)

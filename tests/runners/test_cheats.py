"""Test that no cheat is accepted as faster and no honest twin is refused.

The short form has one cheat for each row of docs/cheats.md whose defence no other test shows, in C++ where there is
one. `make test-long` and `make cheats` try all of them, `make cheats-gpu` those for a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cheats.fixture import Fixture, fixtures, read
from tests.cheats.table import CANARY, cheat_faults, run, twin_faults, won

ON_CPU = list(fixtures("cpu"))
# Where `make test` shows the defence of a row without its cheat.
SHOWN_ELSEWHERE = {
    3: "test_evaluate",  # a subclass of a tensor is refused
    8: "test_sandbox",  # a process's scratch directory is its own and vanishes
    11: "test_evaluate",  # a changed input is noticed
    12: "test_evaluate",  # an output that nobody wrote is NaN
    13: "test_sandbox_escapes",  # other processes and their memory are out of reach
    14: "test_evaluate",  # NaN is wrong
    15: "test_evaluate",  # type, shape and count are exact
    16: "test_evaluate",  # one element or a row is enough to be wrong
    17: "test_harness_compare",  # half precision is wrong
    19: "test_authorship",  # kernels are found in the text
    22: "test_sandbox_escapes",  # nothing but its own directory can be written
    23: "test_evaluate",  # output and memory are limited
    24: "test_sandbox_escapes",  # there is no network and no foreign environment
}


pytestmark = [pytest.mark.evaluates, pytest.mark.split]


def shown() -> Iterator[Any]:
    """Yield every cheat; those whose row another test shows already are left to the long form."""
    rows = set(SHOWN_ELSEWHERE)
    for fixture in sorted(ON_CPU, key=lambda fixture: (fixture.row, fixture.path.suffix != ".cpp")):
        yield pytest.param(fixture, id=fixture.name, marks=[pytest.mark.long] if fixture.row in rows else [])
        rows.add(fixture.row)


@pytest.fixture(autouse=True)
def canary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CANARY, "canary")


@pytest.mark.slow
@pytest.mark.parametrize("fixture", list(shown()))
def test_cheat_is_caught_and_its_honest_twin_accepted(fixture: Fixture) -> None:
    row = run(fixture, "cpu")
    assert not won(row.cheat), row.cheat
    assert cheat_faults(fixture, row.cheat) == []
    assert twin_faults(row.twin) == []


def test_rows_shown_elsewhere_name_a_file_of_tests() -> None:
    assert all(Path(__file__).with_name(f"{name}.py").exists() for name in SHOWN_ELSEWHERE.values())


def test_every_row_has_a_fixture_for_the_cpu() -> None:
    assert {fixture.row for fixture in ON_CPU} == set(range(1, 28)) - {26}


def test_every_row_that_a_gpu_can_show_has_a_fixture_for_it() -> None:
    assert {fixture.row for fixture in fixtures("gpu")} == set(range(1, 28))


def test_header_without_an_expectation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.cpp"
    path.write_text("// cheat 1: hopes\nKERNEL {}\n")
    with pytest.raises(ValueError, match="expect"):
        read(path)

"""No cheat is accepted as faster, no honest twin is refused: one cheat for each row of docs/cheats.md, in C++ where
there is one. `make test-long` and `make cheats` try all of them, `make cheats-gpu` those for a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cheats.fixture import Fixture, fixtures, read
from tests.cheats.table import CANARY, cheat_faults, run, twin_faults, won

ON_CPU = list(fixtures("cpu"))


pytestmark = [pytest.mark.evaluates, pytest.mark.split]


def shown() -> Iterator[Any]:
    """Yield every cheat; those whose row of the table an earlier one shows already are left to the long form."""
    rows: set[int] = set()
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


def test_every_row_has_a_fixture_for_the_cpu() -> None:
    assert {fixture.row for fixture in ON_CPU} == set(range(1, 28)) - {26}


def test_every_row_that_a_gpu_can_show_has_a_fixture_for_it() -> None:
    assert {fixture.row for fixture in fixtures("gpu")} == set(range(1, 28))


def test_header_without_an_expectation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.cpp"
    path.write_text("// cheat 1: hopes\nKERNEL {}\n")
    with pytest.raises(ValueError, match="expect"):
        read(path)

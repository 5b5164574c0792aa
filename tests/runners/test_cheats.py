"""No cheat is accepted as faster, no honest twin is refused. GPU rows: `make cheats-gpu`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cheats.fixture import Fixture, fixtures, read
from tests.cheats.table import CANARY, cheat_faults, run, twin_faults, won

ON_CPU = list(fixtures("cpu"))


@pytest.fixture(autouse=True, scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["KERNELSCI_STATE"] = str(tmp_path_factory.mktemp("state"))
    os.environ[CANARY] = "canary"


@pytest.mark.slow
@pytest.mark.parametrize("fixture", ON_CPU, ids=lambda fixture: fixture.name)
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

"""The benchmark on recorded landscapes counts what it says it counts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search import Landscape, Search, _figures, _progress, heading, main, report, search

TIMES = {(1, 0): 8.0, (1, 1): "CompilationFailedConfig", (2, 0): 4.2, (2, 1): 4.0, (3, 0): 1e20}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    cache = {f"{a},7,{b}": {"a": a, "fixed": 7, "b": b, "time": time} for (a, b), time in TIMES.items()}
    values = {"a": [1, 2, 3], "fixed": [7], "b": [0, 1]}
    data = {"tune_params_keys": list(values), "tune_params": values, "cache": cache}
    path = tmp_path / "tiny-GPU.json.gz"
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    return path


def test_a_landscape_holds_the_recorded_configurations_and_which_of_them_failed(file: Path) -> None:
    landscape = Landscape.read(file)
    assert landscape.name == "tiny-GPU"
    assert list(landscape.values) == ["a", "b"]
    assert len(landscape.space.rows) == len(TIMES)
    assert {key for key, time in landscape.times.items() if time is None} == {(1, 1), (3, 0)}
    assert (landscape.best, landscape.within(1), landscape.within(5)) == (4.0, 1, 2)


def test_failures_are_evaluations_too(file: Path) -> None:
    landscape = Landscape.read(file)
    reached = tuple(_progress(landscape, iter([(1, 1), (1, 0), (2, 0), (2, 1)]), limit=10))
    assert reached == pytest.approx((0.0, 0.5, 4.0 / 4.2, 1.0))
    one = Search("any", landscape.name, reached)
    assert [one.evaluations_to(percent) for percent in (200, 5, 1)] == [2, 3, 4]


def test_a_search_that_never_gets_there_has_no_count_and_is_printed_as_more_than_its_limit() -> None:
    searches = [Search("gp", "any", (0.5, 1.0)), Search("gp", "any", (0.5, 0.6))]
    assert searches[1].evaluations_to(5) == np.inf
    assert searches[1].reached_after(25) == 0.6
    assert _figures(searches[:1] * 9 + searches[1:], 5, 150) == "2 / 2"
    assert _figures(searches[:1] + searches[1:] * 9, 5, 150) == ">150 / >150"


@pytest.mark.parametrize("sampler", ["gp", "random", "tpe"])
def test_a_search_ends_when_the_space_does(file: Path, sampler: str) -> None:
    found = search(file, sampler, seed=0)
    assert len(found.reached) == len(TIMES)
    assert found.reached[-1] == 1.0


def test_the_best_so_far_never_falls(file: Path) -> None:
    assert (np.diff(search(file, "random", seed=4).reached) >= 0).all()


def test_the_table_names_space_and_sampler(file: Path) -> None:
    found = [search(file, "random", seed) for seed in range(3)]
    assert "5 configurations, 2 fail, 1 / 2 / 2 within" in heading(Landscape.read(file), 3)
    assert report("random", found).startswith("random ")


def test_a_folder_without_recordings_is_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path)]) == 2
    assert "no *.json" in capsys.readouterr().err

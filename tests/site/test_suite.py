"""Test the suite's own parts: which tests may overlap, what a module may leave behind, and the table of times."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from celery import Celery

from runners.harness.devices.device import Device
from tests import leftovers
from tests.leftovers import restored
from tests.parties import EVALUATES, ORDINARY, TIMING, Place
from tests.suite_time import read, report

JUNIT = """<testsuites><testsuite name="pytest" time="7.5">
<testcase classname="tests.site.test_up" name="test_slow" time="6.0">
<properties><property name="processor_s" value="2.5"/></properties></testcase>
<testcase classname="tests.runners.test_cheats" name="test_cheat[a]" time="3.0"/>
<testcase classname="tests.runners.test_cpp" name="test_flag" time="1.0"/>
</testsuite></testsuites>
"""


def is_admitted_beside(mine: str, others: str, folder: Path, kept: str = "") -> bool:
    """Return whether a test of one party may start while one of another runs, or is followed by one of `kept`."""
    entered = threading.Event()

    def enter() -> None:
        place = Place(folder)
        place.take(mine)
        entered.set()
        place.leave()

    place = Place(folder)
    place.take(others)
    waiting = threading.Thread(target=enter)
    waiting.start()
    if kept:
        place.take(kept)
    at_once = entered.wait(0.2)
    place.leave()
    waiting.join(10)
    assert entered.is_set(), "whoever waited is let in at last"
    return at_once


@pytest.mark.parametrize("party", [ORDINARY, EVALUATES])
def test_tests_of_one_party_overlap(party: str, tmp_path: Path) -> None:
    assert is_admitted_beside(party, party, tmp_path)


@pytest.mark.parametrize(
    ("mine", "others"),
    [(ORDINARY, EVALUATES), (EVALUATES, ORDINARY), (TIMING, ORDINARY), (EVALUATES, TIMING), (TIMING, TIMING)],
)
def test_tests_of_two_parties_and_timings_wait_for_each_other(mine: str, others: str, tmp_path: Path) -> None:
    assert not is_admitted_beside(mine, others, tmp_path)


def test_a_place_is_kept_between_two_tests_of_a_party_and_given_up_for_another(tmp_path: Path) -> None:
    assert not is_admitted_beside(EVALUATES, ORDINARY, tmp_path, kept=ORDINARY)
    assert is_admitted_beside(EVALUATES, ORDINARY, tmp_path, kept=EVALUATES)


def test_a_module_that_leaves_a_variable_a_celery_application_or_a_lock_behind_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KERNELSCI_LOCKS", str(tmp_path))
    monkeypatch.setattr(leftovers, "RELEASED_WITHIN_S", 0.0)
    with restored():
        os.environ["KERNELSCI_X"] = "left"
        del os.environ["KERNELSCI_X"]
    with pytest.raises(AssertionError, match="KERNELSCI_X is '1' instead of None"), restored():
        monkeypatch.setenv("KERNELSCI_X", "1")
    device = Device("test")
    with pytest.raises(AssertionError, match=r"lock .*/kernelsci-test-0.lock is held"), device.shared(), restored():
        pass
    with pytest.raises(AssertionError, match="celery_broker is memory://"), restored():
        monkeypatch.setattr(leftovers, "current_app", Celery(broker="memory://", set_as_current=False))


def test_times_are_added_up_by_part_with_the_cheats_apart(tmp_path: Path) -> None:
    path = tmp_path / "tests.xml"
    path.write_text(JUNIT)
    lines = report(*read(path), slowest=1).splitlines()
    assert lines[0] == "3 tests in 8 s by the clock; 10 s added up"
    parts = [line.split() for line in lines[3:6]]
    assert [part[-1] for part in parts] == ["site", "cheats", "runners"]
    assert parts[0][:4] == ["6.0", "s", "2.5", "s"]
    assert lines[-1].endswith("site.test_up: test_slow")

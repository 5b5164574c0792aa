"""Test the suite's own parts: which tests may overlap, what a module may leave behind, and the table of times."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from celery import Celery

from runners.harness.devices.device import Device
from tests import left_to_ci, leftovers, unchanged
from tests.conftest import COLLECTED, is_named, refuse_commits_after_shared_rows
from tests.leftovers import restored
from tests.parallel import spread
from tests.parties import ORDINARY, TIMING, Place
from tests.suite_time import read, report

ROOT = Path(__file__).parents[2]
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


@dataclass
class Item:
    """Represent a collected test with the mark `unchanged`."""

    path: Path
    read: tuple[str, ...] = ()
    marked: bool = True
    name: str = "test_it[a]"
    originalname: str = "test_it"

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return pytest.mark.unchanged(*self.read).mark if self.marked and name == unchanged.MARK else None


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the root of a small repository, in which nothing has passed yet."""
    for name in ("runners/a.py", "pages/one.md", "tests/test_it.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(unchanged, "ROOT", tmp_path)
    monkeypatch.setattr(unchanged, "COMMON", ("runners",))
    monkeypatch.setattr(unchanged, "PASSED", tmp_path / "tests" / "passed.json")
    return tmp_path


def note_passed(*items: Item, failed: set[str] | None = None) -> None:
    unchanged.write(unchanged.digests_of([cast(Any, item) for item in items]), failed or set())


def is_unchanged(item: Item) -> bool:
    unchanged._digest.cache_clear()
    unchanged.passed.cache_clear()
    return unchanged.is_unchanged(cast(Any, item))


def test_a_test_that_has_passed_is_left_out_until_something_that_it_reads_changes(tree: Path) -> None:
    item = Item(tree / "tests" / "test_it.py", ("pages",))
    assert not is_unchanged(item)
    note_passed(item)
    assert is_unchanged(item)
    for name in ("runners/a.py", "pages/one.md", "tests/test_it.py"):
        before = (tree / name).read_text()
        (tree / name).write_text("changed")
        assert not is_unchanged(item), name
        (tree / name).write_text(before)
        assert is_unchanged(item)
    (tree / "runners" / "new.py").touch()
    assert not is_unchanged(item)


def test_another_version_of_a_compiler_has_such_a_test_run_again(tree: Path, monkeypatch: Any) -> None:
    item = Item(tree / "tests" / "test_it.py")
    note_passed(item)
    monkeypatch.setattr(unchanged, "_versions", lambda: ["another"])
    assert not is_unchanged(item)


def test_a_file_that_was_renamed_is_missed(tree: Path) -> None:
    with pytest.raises(FileNotFoundError, match="pages2"):
        is_unchanged(Item(tree / "tests" / "test_it.py", ("pages2",)))


def test_what_failed_and_what_has_no_such_mark_is_never_left_out(tree: Path) -> None:
    item, plain = Item(tree / "tests" / "test_it.py"), Item(tree / "tests" / "test_it.py", marked=False)
    note_passed(item, plain, failed={"tests/test_it.py::test_it"})
    assert not is_unchanged(item) and not is_unchanged(plain)
    note_passed(plain)
    assert not is_unchanged(plain)


def test_what_is_left_to_ci_exists_and_something_of_every_part_and_file_is_kept(
    request: pytest.FixtureRequest,
) -> None:
    collected = request.config.stash[COLLECTED]
    files = {name.partition("::")[0] for name in collected}
    entries = [entry for entry in left_to_ci.LEFT if f"tests/{entry.file}" in files]
    nameless = [entry for entry in entries if not any(map(entry.holds, collected))]
    # Of a file that was asked for by name, some tests may not have been collected.
    assert not nameless or is_named(request.config)
    assert all(entry.kept and (ROOT / "tests" / entry.file).is_file() for entry in left_to_ci.LEFT)
    left = set(filter(left_to_ci.is_left, collected))
    kept = [name for name in collected if name not in left]
    places = {f"tests/{name.split('/')[1]}/" for name in collected}
    if not is_named(request.config):
        # An entry with a pattern claims that something of its file is kept.
        places |= {f"tests/{entry.file}::" for entry in entries if entry.names}
    assert not [place for place in places if not any(name.startswith(place) for name in kept)]


def test_ordinary_tests_overlap(tmp_path: Path) -> None:
    assert is_admitted_beside(ORDINARY, ORDINARY, tmp_path)


@pytest.mark.parametrize(("mine", "others"), [(TIMING, ORDINARY), (ORDINARY, TIMING), (TIMING, TIMING)])
def test_tests_of_two_parties_and_timings_wait_for_each_other(mine: str, others: str, tmp_path: Path) -> None:
    assert not is_admitted_beside(mine, others, tmp_path)


def test_a_place_is_kept_between_two_tests_of_a_party_and_given_up_for_another(tmp_path: Path) -> None:
    assert not is_admitted_beside(TIMING, ORDINARY, tmp_path, kept=ORDINARY)
    assert is_admitted_beside(ORDINARY, TIMING, tmp_path, kept=ORDINARY)


def test_evaluations_are_spread_between_the_others_and_none_is_left_for_the_end() -> None:
    def one_letter(item: Any) -> str:
        return str(item)[0]

    evaluations: list[Any] = ["x1", "x2", "y1"]
    others: list[Any] = [f"{letter}{number}" for letter in "abcdefghij" for number in (1, 2)]
    order = " ".join(map(str, spread(evaluations, others, one_letter)))
    assert order == "x1 x2 a1 a2 b1 b2 c1 c2 d1 d2 y1 e1 e2 f1 f2 g1 g2 h1 h2 i1 i2 j1 j2"
    assert spread([], others, one_letter) == others and spread(evaluations, [], one_letter) == evaluations


def test_a_test_that_commits_after_one_that_shares_rows_is_refused_instead_of_waiting_for_ever() -> None:
    class Item:
        """Stand in for a collected test of one file."""

        def __init__(self, name: str, *fixtures: str) -> None:
            self.name = self.nodeid = name
            self.path, self.fixturenames = Path("test_one.py"), fixtures

        def get_closest_marker(self, name: str) -> None:
            return None

    committing, sharing = Item("commits", "transactional_db"), Item("shares", "module_rows")
    items: list[Any] = [committing, sharing]
    refuse_commits_after_shared_rows(items)
    with pytest.raises(pytest.UsageError, match="commits commits and comes after shares"):
        refuse_commits_after_shared_rows(items[::-1])


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

"""Test `manage.py observe`: a folder's kernels become a run's, each state of a file once, and verdicts come back."""

from __future__ import annotations

import json
import os
import time
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from optimizer.models import EvaluationState, Run, RunState, Team, User
from optimizer.observing.folder import VERDICTS, ObservedFolder
from optimizer.queries.budgets import Budget
from tests.driven_runs import make_driven_run
from tests.factories import drive, make_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(team: Team, member: User) -> Run:
    return make_driven_run(2, team, member, strategy="external", budget=Budget(evaluations=20))


@pytest.fixture
def watched(run: Run, member: User, tmp_path: Path) -> ObservedFolder:
    return ObservedFolder(tmp_path, run, member)


def write(folder: Path, name: str, text: str, age_s: float = 60.0) -> None:
    """Write a file that has rested for so long."""
    (folder / name).write_text(text)
    at = time.time() - age_s
    os.utime(folder / name, (at, at))


def files_of(run: Run) -> list[tuple[str, list[int]]]:
    """Return the submitted kernels by file, with their parents' numbers."""
    rows = run.kernels.filter(author_kind="agent").order_by("number")
    return [(row.meta["file"], list(row.parents.values_list("number", flat=True))) for row in rows]


def test_each_state_of_a_file_becomes_a_kernel_derived_from_the_former(watched: ObservedFolder) -> None:
    write(watched.folder, "a.cpp", "// one\n")
    first = list(watched.scan())
    assert list(watched.scan()) == []
    write(watched.folder, "a.cpp", "// two\n")
    list(watched.scan())
    number = watched.run.kernels.get(key__startswith="external.file:a.cpp", source="// one\n").number
    assert files_of(watched.run) == [("a.cpp", []), ("a.cpp", [number])]
    assert first == [f"a.cpp: submitted as #{number}"]


def test_watcher_that_is_started_again_submits_nothing_twice(watched: ObservedFolder) -> None:
    write(watched.folder, "a.cpp", "// one\n")
    list(watched.scan())
    again = ObservedFolder(watched.folder, watched.run, watched.user)
    assert [line for line in again.scan() if "submitted" in line] == []
    assert len(files_of(watched.run)) == 1


def test_notes_give_title_parents_and_hypothesis(watched: ObservedFolder) -> None:
    write(watched.folder, "a.cpp", "// base\n")
    list(watched.scan())
    notes = {"title": "Wider", "parents": ["a.cpp"], "hypothesis": {"title": "Vectors help.", "predicted_min": 5.0}}
    write(watched.folder, "b.json", json.dumps(notes))
    write(watched.folder, "b.cpp", "// wider\n")
    list(watched.scan())
    row = watched.run.kernels.get(title="Wider")
    assert row.hypothesis is not None
    assert (row.hypothesis.title, row.hypothesis.predicted_min) == ("Vectors help.", 5.0)
    assert row.parents.get().meta["file"] == "a.cpp"


def test_verdicts_are_written_beside_the_kernels(watched: ObservedFolder) -> None:
    write(watched.folder, "a.cpp", "// one\n")
    list(watched.scan())
    drive(watched.run, rounds=1)
    assert any("correct" in line for line in watched.scan())
    verdict = json.loads((watched.folder / VERDICTS / "a.cpp.json").read_text())
    assert (verdict["state"], verdict["status"]) == ("done", "correct")


def test_file_that_is_being_written_waits(watched: ObservedFolder) -> None:
    write(watched.folder, "a.cpp", "// half\n", age_s=0.0)
    assert list(watched.scan()) == []


def test_times_in_notes_are_kept_as_reported_if_asked_for(run: Run, member: User, tmp_path: Path) -> None:
    write(tmp_path, "a.json", json.dumps({"reported": {"time_us": 30.0, "device": "desk"}}))
    write(tmp_path, "a.cpp", "// one\n")
    list(ObservedFolder(tmp_path, run, member, reported=True).scan())
    row = run.kernels.get(author_kind="agent")
    assert row.evaluation.state == EvaluationState.REPORTED


@pytest.mark.parametrize(
    ("name", "text", "notes", "words"),
    [
        ("a.cpp", "// a\n", "{", "not JSON"),
        ("a.cpp", "// a\n", '{"owner": 1}', "unknown field"),
        ("a.cpp", "// a\n", '{"parents": ["z.cpp"]}', "was not submitted from this folder"),
        ("a.cpp", "// a\n", '{"title": 3}', "expected str"),
        ("a.cpp", "", "{}", "Enter the source"),
        ("a.cu", "// a\n", "{}", "takes kernels in"),
        ("a" * 90 + ".cpp", "// a\n", "{}", "80 characters"),
    ],
)
def test_what_cannot_be_submitted_is_said_once_and_beside_the_file(
    watched: ObservedFolder, name: str, text: str, notes: str, words: str
) -> None:
    write(watched.folder, str(Path(name).with_suffix(".json")), notes)
    write(watched.folder, name, text)
    said = list(watched.scan())
    assert len(said) == 1 and words in said[0]
    assert words in json.loads((watched.folder / VERDICTS / f"{name}.json").read_text())["reason"]
    assert list(watched.scan()) == []
    assert files_of(watched.run) == []


def test_links_binary_files_and_others_names_are_left_out(watched: ObservedFolder) -> None:
    (watched.folder / "link.cpp").symlink_to("/etc/passwd")
    (watched.folder / "folder.cpp").mkdir()
    write(watched.folder, ".hidden.cpp", "// no\n")
    write(watched.folder, "notes.txt", "no kernel\n")
    (watched.folder / "binary.cpp").write_bytes(b"\xff\xfe\x00")
    os.utime(watched.folder / "binary.cpp", (1, 1))
    assert [line.split(":")[0] for line in watched.scan()] == ["binary.cpp"]
    assert files_of(watched.run) == []


def test_verdicts_are_not_written_through_a_link(
    watched: ObservedFolder, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (watched.folder / VERDICTS).symlink_to(elsewhere)
    write(watched.folder, "a.cpp", "")
    list(watched.scan())
    assert list(elsewhere.iterdir()) == []


def test_command_submits_once_and_finishes_the_run(watched: ObservedFolder) -> None:
    write(watched.folder, "a.cpp", "// one\n")
    said, user = StringIO(), watched.user
    assert user is not None
    call_command(
        "observe", str(watched.folder), run=watched.run.pk, user=user.username, once=True, finish=True, stdout=said
    )
    assert "a.cpp: submitted as #" in said.getvalue()
    drive(watched.run, rounds=20)
    assert watched.run.state == RunState.FINISHED


def test_command_says_which_run_or_folder_it_cannot_use(watched: ObservedFolder, team: Team, member: User) -> None:
    tuned = make_run(team, member)
    for options, words in (
        ({"run": tuned.pk}, "no run"),
        ({"run": 10**6}, "no run"),
        ({}, "Give --run, or an existing --problem"),
    ):
        with pytest.raises(CommandError, match=words):
            call_command("observe", str(watched.folder), user=member.username, once=True, **options)
    with pytest.raises(CommandError, match="no such folder"):
        call_command("observe", "/nowhere", run=watched.run.pk)

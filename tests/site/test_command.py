"""Test the command `kernelsci`: one name for the site's commands and the runners'."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError

from kernelsci import __main__ as command
from kernelsci_site.services.var import default_root
from runners.__main__ import main as run_runners
from runners.commands.pipes import READER_GONE, until_the_reader_leaves

ROOT = Path(__file__).parents[2]


def asked(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[list[str]]:
    """Run the command and return what it handed to the runners or the site."""
    seen: list[list[str]] = []

    def run_runners(argv: list[str]) -> int:
        seen.append(["runners", *argv])
        return 3

    monkeypatch.setattr(sys, "argv", ["kernelsci", *arguments])
    monkeypatch.setattr("runners.__main__.main", run_runners)
    monkeypatch.setattr(command, "run_site", lambda argv: seen.append(["site", *argv]))
    seen.append([str(command.main())])
    return seen


@pytest.mark.parametrize("name", ["evaluate", "build", "mcp"])
def test_what_needs_no_site_goes_to_the_runners_with_their_exit_code(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert asked(monkeypatch, name, "--flag") == [["runners", name, "--flag"], ["3"]]


@pytest.mark.parametrize("name", ["up", "doctor", "problems", "backup"])
def test_everything_else_goes_to_the_site(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert asked(monkeypatch, name, "--flag") == [["site", "kernelsci", name, "--flag"], ["0"]]


def test_without_a_command_it_says_which_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(monkeypatch) == [["2"]]
    assert "evaluate" in capsys.readouterr().out


def test_the_runners_alone_say_without_a_command_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_runners([]) == 2
    said = capsys.readouterr()
    assert "Build, check and time kernels." in said.out
    assert "work-spool" in said.out
    assert said.err == ""


def test_a_clone_keeps_its_data_and_a_package_uses_the_users_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_root(tmp_path) == tmp_path / "home/.local/share/kernelsci"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_root(tmp_path) == tmp_path / "data/kernelsci"
    (tmp_path / "manage.py").touch()
    assert default_root(tmp_path) == tmp_path / "var"


@pytest.mark.parametrize(
    ("typed", "shown"),
    [("/opt/bin/kernelsci", "usage: kernelsci evaluate"), ("x", "usage: python -m runners evaluate")],
)
def test_help_names_the_command_that_was_typed(
    typed: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [typed])
    with pytest.raises(SystemExit):
        run_runners(["evaluate", "--help"])
    assert shown in capsys.readouterr().out


def refused(monkeypatch: pytest.MonkeyPatch, cause: Exception, *options: str) -> None:
    """Run a command of the site whose query fails."""

    def fail(_argv: list[str]) -> None:
        raise OperationalError(f"{cause}\n\tIs the server running?") from cause

    monkeypatch.setattr("django.core.management.execute_from_command_line", fail)
    command.run_site(["kernelsci", "inbox", *options])


@pytest.mark.parametrize(
    ("database_url", "remedy"),
    [("", "Start the site: kernelsci up"), ("postgresql://db", "Start that server, or mend DATABASE_URL")],
)
def test_a_database_that_does_not_answer_ends_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, database_url: str, remedy: str
) -> None:
    monkeypatch.setattr(settings, "DATABASE_URL", database_url)
    monkeypatch.setattr(settings, "SITE_COMMAND", "kernelsci")
    with pytest.raises(SystemExit) as ended:
        refused(monkeypatch, psycopg.OperationalError("no such socket"))
    assert ended.value.code == f"PostgreSQL does not answer: no such socket. {remedy}"


def test_a_database_whose_disk_is_full_asks_for_space(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"cannot write: could not extend file\. Free some space"):
        refused(monkeypatch, psycopg.errors.DiskFull("could not extend file"))


def test_what_nobody_can_mend_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OperationalError):
        refused(monkeypatch, psycopg.errors.LockNotAvailable("a lock"))
    with pytest.raises(OperationalError):
        refused(monkeypatch, psycopg.OperationalError("no such socket"), "--traceback")


def test_no_page_or_message_names_a_file_that_a_package_lacks() -> None:
    # Comments and docstrings may: their readers have the source.
    named = [
        path.name for path in (settings.BASE_DIR / "templates").rglob("*.html") if "manage.py" in path.read_text()
    ]
    assert named == []


@pytest.mark.parametrize("words", ["manage.py help", "manage.py help --commands", "-m runners problems list"])
def test_a_command_whose_reader_leaves_ends_without_a_traceback(words: str) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as output:
        argv = [sys.executable, *words.split()]
        done = subprocess.run(argv, cwd=ROOT, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (READER_GONE, "")


def test_a_broken_connection_of_a_command_is_told_though_its_reader_listens() -> None:
    with pytest.raises(BrokenPipeError, match="a socket"), until_the_reader_leaves():
        raise BrokenPipeError("a socket")

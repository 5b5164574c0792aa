"""Test what happens to data of another version: a copy before an upgrade, words before a downgrade."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from kernelsci_site import upgrade
from kernelsci_site.services.dump import DumpError
from kernelsci_site.upgrade import NewerDataError, back_up_before_migrating, refuse_newer_data, unknown_migrations

pytestmark = pytest.mark.django_db


def newest() -> str:
    return sorted(name for app, name in MigrationLoader(connection).disk_migrations if app == "optimizer")[-1]


def test_data_of_this_version_needs_no_copy(tmp_path: Path) -> None:
    refuse_newer_data(tmp_path)
    assert back_up_before_migrating(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.django_db(transaction=True)
def test_older_data_is_copied_before_it_is_migrated(tmp_path: Path) -> None:
    recorder = MigrationRecorder(connection)
    recorder.record_unapplied("optimizer", newest())
    try:
        copy = back_up_before_migrating(tmp_path)
    finally:
        recorder.record_applied("optimizer", newest())
    assert copy is not None
    assert newest() in copy.name
    assert copy.read_bytes().startswith(b"PGDMP")
    assert copy.stat().st_mode & 0o077 == 0


def test_only_the_last_three_copies_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "back_up", lambda _connection, file: file.touch())
    for number in range(4):
        (tmp_path / f"before-2020010{number}T000000-0001_initial.dump").touch()
    (tmp_path / "mine.dump").touch()
    MigrationRecorder(connection).record_unapplied("optimizer", newest())
    copy = back_up_before_migrating(tmp_path)
    assert len(list(tmp_path.glob("before-*"))) == 3
    assert copy is not None and copy in tmp_path.iterdir()
    assert (tmp_path / "mine.dump").exists()


def test_nothing_is_migrated_when_no_copy_could_be_taken(tmp_path: Path) -> None:
    MigrationRecorder(connection).record_unapplied("optimizer", newest())
    with pytest.raises((DumpError, OSError)):
        back_up_before_migrating(tmp_path / "absent")


def test_newer_data_is_refused_with_the_way_back(tmp_path: Path) -> None:
    MigrationRecorder(connection).record_applied("optimizer", "9999_from_the_future")
    with pytest.raises(NewerDataError, match=r"optimizer\.9999_from_the_future is unknown here.*KERNELSCI_VAR"):
        refuse_newer_data(tmp_path)
    (tmp_path / "before-20260101T000000-0024_x.dump").touch()
    with pytest.raises(NewerDataError, match=r"manage\.py restore --replace '.*0024_x\.dump'"):
        refuse_newer_data(tmp_path)


def test_tables_of_an_app_that_is_switched_off_are_not_newer_data() -> None:
    MigrationRecorder(connection).record_applied("socialaccount", "0001_initial")
    assert unknown_migrations(MigrationLoader(connection)) == []

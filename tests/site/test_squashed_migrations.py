"""Test that a database whose tables were made at once has the tables of one that was migrated step by step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from benchmarks.migrations import insert_rows, migrate_step_by_step
from optimizer.migrations._at_once import AtOnce
from optimizer.models import Job, Run
from optimizer.runs import dispatch
from runners.signing import jobs

# Without a transaction around it: other databases are made and dropped.
pytestmark = pytest.mark.django_db(transaction=True)
LAST_REPLACED = "0037_continued_campaigns"
TABLES = (
    "Team", "User", "Problem", "ProblemVersion", "Target", "Provider", "Run", "Hypothesis", "Kernel", "Evaluation",
    "Job", "SignIn",
)  # fmt: skip
ROWS = 3
CATALOGUE = {
    "columns": """
        SELECT table_name, column_name, data_type, character_maximum_length, is_nullable, column_default, is_identity
        FROM information_schema.columns WHERE table_schema = 'public'
    """,
    "constraints": """
        SELECT conrelid::regclass::text, conname, convalidated, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    """,
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "triggers": "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "functions": "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
}


def catalogue() -> dict[str, set[tuple[object, ...]]]:
    """Return what the database consists of, but for the order of columns and for tables of libraries."""
    found = {}
    with connection.cursor() as cursor:
        for kind, query in CATALOGUE.items():
            cursor.execute(query)
            found[kind] = {row for row in cursor.fetchall() if "optimizer_" in str(row)}
    return found


@contextmanager
def another_database() -> Iterator[None]:
    """Connect to an empty database of the same server. Data migrations know no other connection than the site's."""
    own = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE DATABASE "{own}_steps"')
    try:
        connection.close()
        connection.settings_dict["NAME"] = f"{own}_steps"
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = own
        with connection.cursor() as cursor:
            cursor.execute(f'DROP DATABASE "{own}_steps"')


@cache
def catalogue_at_once() -> dict[str, set[tuple[object, ...]]]:
    """Return what a new database consists of. That of the tests may have been dumped and restored by one of them, after
    which PostgreSQL writes the same conditions in another way."""
    with another_database():
        call_command("migrate", verbosity=0)
        return catalogue()


def test_tables_made_at_once_are_those_made_step_by_step() -> None:
    at_once = catalogue_at_once()
    with another_database():
        migrate_step_by_step(LAST_REPLACED)
        call_command("migrate", verbosity=0)  # the tables of libraries
        steps = catalogue()
    assert all(steps.values())
    assert {kind: rows ^ at_once[kind] for kind, rows in steps.items()} == {kind: set() for kind in CATALOGUE}


@pytest.mark.parametrize("reached", ["0009_artefact_hash", "0024_campaigns"])
def test_a_database_that_has_had_some_of_the_steps_is_given_the_others(reached: str) -> None:
    whole = catalogue_at_once()
    with another_database():
        migrate_step_by_step(reached)
        call_command("migrate", verbosity=0)
        assert catalogue() == whole
        loader = MigrationLoader(connection)
        assert {name for app, name in loader.applied_migrations if app == "optimizer"} == {
            name for app, name in loader.disk_migrations if app == "optimizer"
        }


@pytest.mark.parametrize("failing", [1, 2])
def test_a_first_start_that_ends_while_tables_are_made_begins_again(
    failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = itertools.count(1)
    whole, make = catalogue_at_once(), AtOnce.database_forwards

    def make_and_fail(*arguments: Any) -> None:
        make(*arguments)
        if next(calls) == failing:
            raise InterruptedError

    with another_database():
        monkeypatch.setattr(AtOnce, "database_forwards", make_and_fail)
        with pytest.raises(InterruptedError):
            call_command("migrate", verbosity=0)
        call_command("migrate", verbosity=0)
        assert catalogue() == whole


@pytest.mark.parametrize("reached", ["0017_opponents_indexed", "0018_sign_ins_to_allauth"])
def test_what_the_steps_did_to_rows_is_done_at_once_too(reached: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "spec_from", lambda stored: stored)
    monkeypatch.setattr(jobs, "signature_of", lambda spec, keyring: "signed")
    with another_database():
        migrate_step_by_step("0017_opponents_indexed")
        make_rows("0017_opponents_indexed")
        migrate_step_by_step(reached)
        call_command("migrate", verbosity=0)
        assert UserSession.objects.count() == ROWS
        assert [run.settings for run in Run.objects.all()] == [{"tools": "none"}] * ROWS
        assert [job.signature for job in Job.objects.all()] == ["signed"] * ROWS


def make_rows(reached: str) -> None:
    """Fill the tables of a migration: runs of a strategy with writers, jobs that wait and people who are signed in."""
    apps = MigrationLoader(connection, replace_migrations=False).project_state(("optimizer", reached)).apps
    insert_rows(apps, dict.fromkeys(TABLES, ROWS))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE optimizer_run SET strategy = 'stark'")
        cursor.execute("UPDATE optimizer_job SET state = 'queued'")

"""Test migrations that may meet a table of a million rows: what holds a lock while it reads or rewrites it is refused.

Migrations up to LAST_FREE came before there was an installation to upgrade; they are as they are.
`python -m benchmarks.migrations` measures all others.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.models import NOT_PROVIDED, ForeignKey

LAST_FREE = 4
BIG = {"run", "kernel", "kernelparent", "evaluation", "measurement", "job", "joblog", "llmcall", "runevent",
       "hypothesis", "auditentry", "notification", "webhookdelivery"}  # fmt: skip
LOCKING = {
    "AddIndex": "use django.contrib.postgres.operations.AddIndexConcurrently, with atomic = False",
    "RemoveIndex": "use RemoveIndexConcurrently, with atomic = False",
    "AddConstraint": "use AddConstraintNotValid, and ValidateConstraint in a migration of its own",
    "AlterField": "a changed type rewrites the table: add a field, fill it in batches, drop the old one",
    "AlterUniqueTogether": "build a unique index concurrently first",
}


def fault(operation: Operation, made_here: set[str]) -> str:
    """Return what is wrong with an operation on a big table, or ""."""
    table = getattr(operation, "model_name", "").lower()
    if table not in BIG or table in made_here:
        return ""
    if isinstance(operation, migrations.AddField):
        return _field_fault(operation)
    if isinstance(operation, AddIndexConcurrently):
        return ""
    advice = LOCKING.get(type(operation).__name__, "")
    return f"{type(operation).__name__} on {table}: {advice}" if advice else ""


def _field_fault(operation: migrations.AddField) -> str:
    """Return what is wrong with an added field, or "". A constant default costs nothing (PostgreSQL 11 keeps it in the
    catalogue); a computed one, an index or a foreign key reads or writes every row."""
    field = operation.field
    has_index = field.db_index  # type: ignore[attr-defined]  # the stubs lack it
    if has_index or field.unique or isinstance(field, ForeignKey):
        return f"{operation.name}: add it without an index, then AddIndexConcurrently"
    constant = field.null or field.db_default is not NOT_PROVIDED or not callable(field.default)
    if constant or field.default in (NOT_PROVIDED, dict, list):
        return ""
    return f"{operation.name}: its default is computed row by row"


def new_migrations() -> Iterator[migrations.Migration]:
    """Yield our migrations that came after there were installations, without those that repeat others at once."""
    loader = MigrationLoader(None, ignore_no_migrations=True)
    for (app, name), migration in sorted(loader.disk_migrations.items()):
        if app == "optimizer" and int(name[:4]) > LAST_FREE and not migration.replaces:
            yield migration


def test_new_migrations_hold_no_long_lock_on_big_tables() -> None:
    found = []
    for migration in new_migrations():
        made_here = {op.name.lower() for op in migration.operations if isinstance(op, migrations.CreateModel)}
        faults = [fault(operation, made_here) for operation in migration.operations]
        found += [f"{migration.name}: {text}" for text in faults if text]
    assert found == []


@pytest.mark.parametrize("kind", ["AddIndex", "AddConstraint", "AlterField", "AddField"])
def test_what_locks_is_refused_on_a_big_table_and_nowhere_else(kind: str) -> None:
    from django.db import models

    operation: Operation = {
        "AddIndex": migrations.AddIndex("Job", models.Index(fields=["worker"], name="x")),
        "AddConstraint": migrations.AddConstraint(
            "Job", models.CheckConstraint(condition=models.Q(pk=1), name="x")
        ),
        "AlterField": migrations.AlterField("Job", "worker", models.TextField()),
        "AddField": migrations.AddField("Job", "x", models.IntegerField(null=True, db_index=True)),
    }[kind]
    assert fault(operation, set())
    assert not fault(operation, {"job"})


def test_an_index_that_is_built_beside_the_work_is_accepted() -> None:
    from django.db import models

    assert not fault(AddIndexConcurrently("Job", models.Index(fields=["worker"], name="x")), set())
    assert not fault(migrations.AddField("Job", "x", models.IntegerField(default=0)), set())


def test_a_concurrent_index_stands_outside_a_transaction() -> None:
    for migration in new_migrations():
        if any(isinstance(operation, AddIndexConcurrently) for operation in migration.operations):
            assert migration.atomic is False, migration.name

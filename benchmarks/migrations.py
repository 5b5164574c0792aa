"""Measure how long an upgrade holds up a working site: every migration since the first release, and each kind of change
that `tests/site/test_migrations.py` allows later ones, on tables of a million rows.

    python -m benchmarks.migrations                     # a million rows a big table; some minutes
    python -m benchmarks.migrations --rows 100000

A fresh PostgreSQL is filled at migration FIRST and upgraded one migration after the other, while another process reads
and writes one row of every big table in turn; printed is the longest that one of its statements took. The goal: no
statement waits longer than GOAL_S. "Nothing" is the same client beside no migration: what the machine itself costs.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from typing import TYPE_CHECKING, Any

from benchmarks import installation

if TYPE_CHECKING:
    from django.apps.registry import Apps
    from django.db.models import Field, Model

FIRST = "0004_dispatch_settings"
RUNS = 1000
GOAL_S = 1.0
# in the order that foreign keys ask for; each gets --rows but the runs
BIG = ("Run", "Hypothesis", "Kernel", "Evaluation", "Measurement", "Job", "JobLog", "LlmCall", "RunEvent")
SMALL = ("Team", "User", "Problem", "ProblemVersion", "Target", "Provider")
ALLOWED = {
    "a column without a value": "ALTER TABLE optimizer_evaluation ADD COLUMN later text NULL",
    "a column with a constant": "ALTER TABLE optimizer_evaluation ADD COLUMN marked boolean NOT NULL DEFAULT false",
    "an index built beside the work": "CREATE INDEX CONCURRENTLY later_x ON optimizer_evaluation (kernel_id, state)",
    "a check of new rows": "ALTER TABLE optimizer_evaluation ADD CONSTRAINT later_c CHECK (id > 0) NOT VALID",
    "the check of the old ones": "ALTER TABLE optimizer_evaluation VALIDATE CONSTRAINT later_c",
    "a column dropped": "ALTER TABLE optimizer_evaluation DROP COLUMN later",
    "an index dropped": "DROP INDEX CONCURRENTLY later_x",
}


def main() -> int:
    """Measure and print; 1 where the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    # The jobs that `fill` makes cannot be signed, and 0031 would warn of each.
    logging.getLogger("optimizer.migrations").setLevel(logging.ERROR)
    print(installation.provenance())
    with installation.bare_postgres():
        fill(options.rows)
        longest_s = max(upgrade(), what_is_allowed())
    met = longest_s <= GOAL_S
    print(f"longest wait {longest_s * 1000:.0f} ms; goal ({GOAL_S:.0f} s): {'met' if met else 'missed'}")
    return int(not met)


def upgrade() -> float:
    """Run all migrations after FIRST, one by one, and return the longest wait beside any of them, in seconds."""
    with probed("nothing"):
        time.sleep(5)
    names = sorted(steps())
    waits = []
    for name in names[names.index(FIRST) + 1 :]:
        with probed(name) as wait:
            migrate_step_by_step(name)
        waits.append(wait[0])
    return max(waits)


def steps() -> list[str]:
    """Return the names of our migrations without the squashed ones, which repeat others at once."""
    from django.db.migrations.loader import MigrationLoader

    found = MigrationLoader(None).disk_migrations.items()
    return [name for (app, name), migration in found if app == "optimizer" and not migration.replaces]


def migrate_step_by_step(last: str) -> None:
    """Migrate the default database as far as one of our migrations, without those that are squashed."""
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor
    from django.db.migrations.loader import MigrationLoader

    executor = MigrationExecutor(connection)
    executor.loader = MigrationLoader(connection, replace_migrations=False)
    executor.migrate([("optimizer", last)])


def what_is_allowed() -> float:
    """Run each statement of ALLOWED, and return the longest wait beside any of them, in seconds."""
    from django.db import connection

    waits = []
    for what, statement in ALLOWED.items():
        with probed(what) as wait, connection.cursor() as cursor:
            cursor.execute(statement)
        waits.append(wait[0])
    return max(waits)


@contextmanager
def probed(what: str) -> Iterator[list[float]]:
    """Run the client beside the block. Prints how long the block took; the list then has the client's longest wait."""
    context = multiprocessing.get_context("spawn")
    ready, stop, longest = context.Event(), context.Event(), context.SimpleQueue()
    client = context.Process(target=probe, args=(conninfo(), ready, stop, longest))
    client.start()
    ready.wait(60)
    waited: list[float] = []
    began = time.monotonic()
    try:
        yield waited
    finally:
        took_s = time.monotonic() - began
        time.sleep(0.2)  # a statement that still waits is counted too
        stop.set()
        wait_s, statements = longest.get()
        client.join()
        assert client.exitcode == 0, "the client failed"
        waited.append(wait_s)
        print(f"{what:36} {took_s:7.2f} s   longest wait {wait_s * 1000:7.0f} ms of {statements} statements",
              flush=True)  # fmt: skip


def conninfo() -> str:
    """Return where the database is, as libpq reads it."""
    from django.db import connection
    from psycopg.conninfo import make_conninfo

    known = ("host", "port", "dbname", "user", "password")
    return make_conninfo(**{key: v for key, v in connection.get_connection_params().items() if key in known})


def probe(database: str, ready: Event, stop: Event,
          longest: multiprocessing.SimpleQueue[tuple[float, int]]) -> None:  # fmt: skip
    """Read and write a row of every big table in turn until told to stop; each statement is its own transaction."""
    import psycopg

    connection = psycopg.connect(database, autocommit=True, prepare_threshold=None)
    tables = [f"optimizer_{name.lower()}" for name in BIG]
    statements = [f"{kind} WHERE id = %s" for table in tables
                  for kind in (f"SELECT * FROM {table}", f"UPDATE {table} SET id = id")]  # fmt: skip # noqa: S608
    worst_s, count = 0.0, 0
    try:
        while not stop.is_set():
            for statement in statements:
                began = time.monotonic()
                connection.execute(statement, [1 + count % RUNS])
                worst_s, count = max(worst_s, time.monotonic() - began), count + 1
            ready.set()
            time.sleep(0.002)
    finally:
        longest.put((worst_s, count))


# filling


def fill(rows: int) -> None:
    """Fill the tables of migration FIRST with that many rows each, made by the database from the fields themselves."""
    from django.db import connection
    from django.db.migrations.loader import MigrationLoader

    began = time.monotonic()
    migrate_step_by_step(FIRST)
    apps = MigrationLoader(connection, replace_migrations=False).project_state(("optimizer", FIRST)).apps
    counts = dict.fromkeys(SMALL, 1) | dict.fromkeys(BIG, rows) | {"Run": RUNS}
    insert_rows(apps, counts)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    print(f"{len(BIG)} tables of {rows:,} rows (runs: {RUNS:,}) in {time.monotonic() - began:.0f} s", flush=True)


def insert_rows(apps: Apps, counts: dict[str, int]) -> None:
    """Insert that many rows into the tables of these models, which are made by the database."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")  # rows that fit by construction: no check of each
        for name in counts:
            cursor.execute(insert(apps.get_model("optimizer", name), counts))
        cursor.execute("SET session_replication_role = origin")


def insert(model: type[Model], counts: dict[str, int]) -> str:
    """Return one statement that makes the rows 1 to `counts`."""
    columns = {field.column: value(field, counts) for field in model._meta.concrete_fields}
    names, values = ", ".join(f'"{name}"' for name in columns), ", ".join(columns.values())
    count = counts[model.__name__]
    return f'INSERT INTO "{model._meta.db_table}" ({names}) SELECT {values} FROM generate_series(1, {count}) n'  # noqa: S608


def value(field: Field[Any, Any], counts: dict[str, int]) -> str:
    """Return an SQL expression that the column takes in row `n`: NULL where it may be, else something plain."""
    if field.null and not field.unique:
        return "NULL"
    if field.is_relation:
        others = counts[field.related_model.__name__]  # type: ignore[union-attr]
        return "n" if field.unique else f"1 + n % {others}"
    if field.choices:
        return f"'{next(iter(field.choices))[0]}'"
    return PLAIN.get(field.get_internal_type(), "n")


PLAIN = {
    "JSONField": "'{}'", "ArrayField": "'{}'", "DateTimeField": "now()", "BooleanField": "false", "FloatField": "1.0",
    "DecimalField": "0", "CharField": "n::text", "TextField": "n::text", "SlugField": "n::text", "BinaryField": "''",
    "PositiveSmallIntegerField": "n % 100", "SmallIntegerField": "n % 100", "EmailField": "''",
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())

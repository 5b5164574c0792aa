"""Keep rows in the tests' database itself, so that a test gets them back without sending them again.

They lie in tables of a schema of their own, which nothing of the product reads and no test empties.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection, models

SCHEMA = "kept"


def keep_rows(kinds: Sequence[type[models.Model]]) -> None:
    """Keep all rows of these models as the open transaction sees them, whatever becomes of it."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT to_regnamespace('{SCHEMA}') IS NULL")
        assert cursor.fetchone() == (True,), "the rows of one set are kept in a database"
        rows = {}
        for kind in kinds:
            cursor.execute(f'SELECT json_agg(t)::text FROM "{kind._meta.db_table}" t')  # noqa: S608
            rows[kind._meta.db_table] = cursor.fetchone()[0]
    own = connection.copy()  # outside the transaction of a test
    try:
        with own.cursor() as cursor:
            cursor.execute(f"CREATE SCHEMA {SCHEMA}")
            for table, text in rows.items():
                cursor.execute(f'CREATE TABLE {SCHEMA}."{table}" (LIKE public."{table}")')
                cursor.execute(
                    f'INSERT INTO {SCHEMA}."{table}"'  # noqa: S608
                    f' SELECT * FROM json_populate_recordset(NULL::public."{table}", %s)',
                    [text],
                )
    finally:
        own.close()


def insert_kept(kinds: Sequence[type[models.Model]]) -> None:
    """Insert the rows of these models that were kept, with their primary keys."""
    with connection.cursor() as cursor:
        for kind in kinds:
            table, key = kind._meta.db_table, kind._meta.pk.column
            cursor.execute(f'INSERT INTO "{table}" SELECT * FROM {SCHEMA}."{table}" ORDER BY "{key}"')  # noqa: S608

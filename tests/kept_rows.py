"""Keep rows in the tests' database itself, so that a test gets them back without sending them again.

They lie in tables of a schema of their own, which nothing of the product reads and no test empties. It holds one set of
rows: what is kept later replaces what was kept before.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection, models

SCHEMA = "kept"


def keep_rows(kinds: Sequence[type[models.Model]]) -> None:
    """Keep all rows of these models as the open transaction sees them, whatever becomes of it."""
    rows = {}
    with connection.cursor() as cursor:
        for kind in kinds:
            cursor.execute(f'SELECT json_agg(t)::text FROM "{kind._meta.db_table}" t')  # noqa: S608
            rows[kind._meta.db_table] = cursor.fetchone()[0]
    own = connection.copy()  # outside the transaction of a test
    try:
        with own.cursor() as cursor:
            cursor.execute(f"BEGIN; DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CREATE SCHEMA {SCHEMA}")
            for table, text in rows.items():
                cursor.execute(f'CREATE TABLE {SCHEMA}."{table}" (LIKE public."{table}")')
                cursor.execute(
                    f'INSERT INTO {SCHEMA}."{table}"'  # noqa: S608
                    f' SELECT * FROM json_populate_recordset(NULL::public."{table}", %s)',
                    [text],
                )
            cursor.execute("COMMIT")
    finally:
        own.close()


def insert_kept(kinds: Sequence[type[models.Model]]) -> None:
    """Insert the rows of these models that were kept, with their primary keys."""
    with connection.cursor() as cursor:
        for kind in kinds:
            table, key = kind._meta.db_table, kind._meta.pk.column
            cursor.execute(f'INSERT INTO "{table}" SELECT * FROM {SCHEMA}."{table}" ORDER BY "{key}"')  # noqa: S608

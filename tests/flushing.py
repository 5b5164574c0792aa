"""Empty the tables after a test that commits: by DELETE, which costs a tenth of TRUNCATE where few rows are there."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import flush
from django.core.management.sql import sql_flush
from django.db.backends.base.base import BaseDatabaseWrapper

# TRUNCATE makes new files for every table, index and TOAST table. Like it, this waits for transactions of other
# processes, since rows that they have not committed yet would survive. A superuser may leave out triggers and foreign
# keys, so no table's rows have to go before another's. A page that is still being served locks tables in
# another order; the locks taken so far are given back then.
EMPTY = """DO $$
DECLARE name text;
BEGIN
  LOOP
    BEGIN
      LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE;
      EXIT;
    EXCEPTION WHEN deadlock_detected THEN
      NULL;
    END;
  END LOOP;
  SET LOCAL session_replication_role = replica;
  FOREACH name IN ARRAY ARRAY[{names}] LOOP
    EXECUTE format('DELETE FROM %I', name);
  END LOOP;
  SET LOCAL session_replication_role = DEFAULT;
END $$"""


def delete_rows(
    style: Any, connection: BaseDatabaseWrapper, reset_sequences: bool = True, allow_cascade: bool = False
) -> list[str]:
    """Return what empties the tables, as Django's `sql_flush` does where these statements may not be used."""
    if reset_sequences or not _is_superuser(connection):
        return sql_flush(style, connection, reset_sequences=reset_sequences, allow_cascade=allow_cascade)
    names = connection.introspection.django_table_names(only_existing=True, include_views=False)
    return [EMPTY.format(tables=", ".join(f'"{name}"' for name in names), names=", ".join(f"'{n}'" for n in names))]


def use_deletes() -> None:
    """Have `flush`, and with it every test that commits, use `delete_rows`."""
    flush.sql_flush = delete_rows  # type: ignore[attr-defined]


def _is_superuser(connection: BaseDatabaseWrapper) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        return bool(cursor.fetchone()[0])

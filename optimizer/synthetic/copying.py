"""Insert many rows through PostgreSQL's COPY."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from django.db import connection, models

M = TypeVar("M", bound=models.Model)

_LAST_KEY = "SELECT greatest(max({key}), pg_sequence_last_value({sequence}), 0) FROM {table}"
_ADVANCE = "SELECT setval({sequence}, greatest(max({key}), pg_sequence_last_value({sequence}), 1)) FROM {table}"


def copy_rows(model: type[M], rows: Iterable[M]) -> int:
    """Store unsaved instances that have primary keys, and return how many.

    Defaults of the model apply, signals do not. Call `renumber` once all rows of a model are stored.
    """
    fields = [field for field in model._meta.concrete_fields if not field.generated]
    columns = ", ".join(connection.ops.quote_name(str(field.column)) for field in fields)
    count = 0
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY {connection.ops.quote_name(model._meta.db_table)} ({columns}) FROM STDIN") as copy,
    ):
        for row in rows:
            copy.write_row([_stored(field, row) for field in fields])
            count += 1
    return count


def renumber(wanted: Iterable[type[models.Model]]) -> None:
    """Advance the sequences of primary keys past the highest one, and update the planner's statistics."""
    for model in wanted:
        _about_keys(model, _ADVANCE)
    with connection.cursor() as cursor:
        # VACUUM cannot run inside a transaction.
        cursor.execute("ANALYZE" if connection.in_atomic_block else "VACUUM ANALYZE")


def next_key(model: type[models.Model]) -> int:
    """Return the first primary key that no row of the model has, and none that was removed ever had.

    Processes cache what they know of a row under its primary key, so a key must not come again.
    """
    return _about_keys(model, _LAST_KEY) + 1


def _about_keys(model: type[models.Model], statement: str) -> int:
    table, key = model._meta.db_table, str(model._meta.pk.column)
    quoted = {name: connection.ops.quote_name(value) for name, value in {"table": table, "key": key}.items()}
    with connection.cursor() as cursor:
        cursor.execute(statement.format(sequence="pg_get_serial_sequence(%(table)s, %(key)s)::regclass", **quoted),
                       {"table": table, "key": key})  # fmt: skip
        return int(cursor.fetchone()[0])


def _stored(field: models.Field[Any, Any], row: models.Model) -> Any:
    value = getattr(row, field.attname)
    if value is None and getattr(field, "auto_now_add", False):
        # COPY bypasses `save`, which would set such fields.
        value = field.pre_save(row, add=True)
    return field.get_db_prep_save(value, connection)

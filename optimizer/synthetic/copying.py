"""Insert many rows through PostgreSQL's COPY."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from django.core.management.color import no_style
from django.db import connection, models

M = TypeVar("M", bound=models.Model)


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


def renumber(wanted: Sequence[type[models.Model]]) -> None:
    """Advance the sequences of primary keys past the highest one, and update the planner's statistics."""
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), list(wanted)):
            cursor.execute(statement)
        # VACUUM cannot run inside a transaction.
        cursor.execute("ANALYZE" if connection.in_atomic_block else "VACUUM ANALYZE")


def next_key(model: type[models.Model]) -> int:
    """Return the first free primary key at the end of a table."""
    return int(model._default_manager.aggregate(top=models.Max("pk"))["top"] or 0) + 1


def _stored(field: models.Field[Any, Any], row: models.Model) -> Any:
    value = getattr(row, field.attname)
    if value is None and getattr(field, "auto_now_add", False):
        # COPY bypasses `save`, which would set such fields.
        value = field.pre_save(row, add=True)
    return field.get_db_prep_save(value, connection)

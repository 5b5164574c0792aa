"""Lists in pages: `limit` of them, and `next`, the cursor that the following page is asked for with (null at the
end). Cursors are row numbers, so a page neither repeats nor skips a row because others were added."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from django.db.models import QuerySet
from ninja import Query, Schema

LIMIT = 100
MOST = 500
T = TypeVar("T")


class Window(Schema):
    """Which part of a list is wanted."""

    limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT
    cursor: Annotated[int | None, Query(ge=0, lt=2**63)] = None


class Page(Schema, Generic[T]):
    """One page of a list."""

    items: list[T]
    next: int | None


def newest_first(rows: QuerySet[Any], window: Window) -> dict[str, Any]:
    """A page by falling primary key."""
    return page_of(rows.order_by("-pk"), window, "pk", falling=True)


def page_of(rows: QuerySet[Any], window: Window, field: str, *, falling: bool = False) -> dict[str, Any]:
    """A page of rows that are ordered by a unique `field`."""
    if window.cursor is not None:
        rows = rows.filter(**{f"{field}__{'lt' if falling else 'gt'}": window.cursor})
    found = list(rows[: window.limit + 1])
    more = len(found) > window.limit
    items = found[: window.limit]
    return {"items": items, "next": getattr(items[-1], field) if more else None}

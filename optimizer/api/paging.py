"""Serve lists in pages of `limit` items with `next`, the cursor of the following page (null at the end).

Cursors are row numbers, so a page neither repeats nor skips a row when others are added.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from django.db.models import QuerySet
from ninja import Query, Schema

LIMIT = 100
MOST = 500
T = TypeVar("T")


class Window(Schema):
    """Select a part of a list."""

    limit: Annotated[int, Query(ge=1, le=MOST)] = LIMIT
    cursor: Annotated[int | None, Query(ge=0, lt=2**63)] = None


class Page(Schema, Generic[T]):
    """Hold one page of a list."""

    items: list[T]
    next: int | None


def newest_first(rows: QuerySet[Any], window: Window) -> dict[str, Any]:
    """Return a page in descending order of the primary key."""
    return page_of(rows.order_by("-pk"), window, "pk", falling=True)


def page_of(rows: QuerySet[Any], window: Window, field: str, *, falling: bool = False) -> dict[str, Any]:
    """Return a page of rows that are ordered by a unique `field`."""
    if window.cursor is not None:
        rows = rows.filter(**{f"{field}__{'lt' if falling else 'gt'}": window.cursor})
    # One row more than requested tells whether another page exists, without a count.
    found = list(rows[: window.limit + 1])
    more = len(found) > window.limit
    items = found[: window.limit]
    return {"items": items, "next": getattr(items[-1], field) if more else None}

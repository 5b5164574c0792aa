"""Roll back what a test or fixture writes to the database outside the transaction of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction


@contextmanager
def rolled_back() -> Iterator[None]:
    """Roll back at the end of this block. A durable block of the product may begin in it, as it may in a test."""
    around = transaction.atomic()
    around._from_testcase = True  # type: ignore[attr-defined]
    with around:
        yield
        transaction.set_rollback(True)

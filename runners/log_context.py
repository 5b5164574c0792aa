"""Add to log lines what the thread works on: a run, a job, a call. Standard library only."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_about: ContextVar[dict[str, int]] = ContextVar("about", default={})  # noqa: B039 - never changed, only replaced


@contextmanager
def about(**ids: int) -> Iterator[None]:
    """Add these ids (`run`, `job`, `call`, `fence`) to every log line of this thread within the block."""
    token = _about.set({**_about.get(), **ids})
    try:
        yield
    finally:
        _about.reset(token)


class WorkFilter(logging.Filter):
    """Put the ids on each record: as attribute `about`, and in words as `work` (` [run 3, job 5]`, or nothing)."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Annotate the record and let it through."""
        ids = _about.get()
        record.about = ids
        words = ", ".join(f"{name} {number}" for name, number in ids.items())
        record.work = f" [{words}]" if words else ""
        return True

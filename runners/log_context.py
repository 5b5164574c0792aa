"""What the log lines of this thread are about: a run, a job, a call. Standard library only."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_about: ContextVar[dict[str, int]] = ContextVar("about", default={})  # noqa: B039 - never changed, only replaced


@contextmanager
def about(**ids: int) -> Iterator[None]:
    """Within it, every log line of this thread carries these ids (`run`, `job`, `call`, `fence`)."""
    token = _about.set({**_about.get(), **ids})
    try:
        yield
    finally:
        _about.reset(token)


class WorkFilter(logging.Filter):
    """Puts the ids on each record: as attribute `about`, and in words as `work` (` [run 3, job 5]`, or nothing)."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Lets everything through."""
        ids = _about.get()
        record.about = ids
        words = ", ".join(f"{name} {number}" for name, number in ids.items())
        record.work = f" [{words}]" if words else ""
        return True

"""Say what a person can do about a database that does not answer or cannot write."""

from __future__ import annotations

import psycopg
from django.conf import settings
from django.db import OperationalError

DISK_FULL = "53100"  # SQLSTATE, PostgreSQL's appendix A


def in_words(error: OperationalError) -> str | None:
    """Return a sentence about a failure that a person can mend, or None where the traceback is needed."""
    cause = error.__cause__
    if not isinstance(cause, psycopg.OperationalError):
        return None
    # A state comes from the server: there is none where no server answered.
    if cause.sqlstate is None:
        return f"PostgreSQL does not answer: {_first_line(error)}. {_how_to_reach()}"
    if cause.sqlstate == DISK_FULL:
        return f"PostgreSQL cannot write: {_first_line(error)}. Free some space, then try again"
    return None


def _first_line(error: OperationalError) -> str:
    return str(error).partition("\n")[0]


def _how_to_reach() -> str:
    if settings.DATABASE_URL:
        return "Start that server, or mend DATABASE_URL"
    return f"Start the site: {settings.SITE_COMMAND} up"

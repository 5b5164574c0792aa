"""A database for a command that runs while the site does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from django.conf import settings
from django.db import connections

from kernelsci_site.services.embedded import running_servers
from kernelsci_site.services.instance import AlreadyRunningError, only_instance
from kernelsci_site.services.postgres import EmbeddedPostgres


@contextmanager
def database_at_rest() -> Iterator[None]:
    """The database with nobody at work on it: the embedded server is started for the while, unless it answers. For a
    server elsewhere only the caller can know who else is there. Raises `AlreadyRunningError` when the site runs
    here."""
    with only_instance(settings.VAR), running_servers(settings.VAR, postgres=_is_to_start(), redis=False):
        try:
            yield
        finally:
            connections.close_all()


def _is_to_start() -> bool:
    return not settings.DATABASE_URL and not EmbeddedPostgres(settings.VAR).is_ready()


@contextmanager
def database() -> Iterator[None]:
    """The database, whether or not the site runs."""
    with ExitStack() as stack:
        with suppress(AlreadyRunningError):
            stack.enter_context(database_at_rest())
        yield

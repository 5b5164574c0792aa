"""A database for a command that runs while the site does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from django.conf import settings
from django.db import connections

from kernelsci_site.services.embedded import running_servers
from kernelsci_site.services.instance import AlreadyRunningError, only_instance


@contextmanager
def database_at_rest() -> Iterator[None]:
    """The database with nobody at work on it: the embedded server is started for the while. For a server elsewhere
    only the caller can know who else is there. Raises `AlreadyRunningError` when the site runs here."""
    with (
        only_instance(settings.VAR),
        running_servers(settings.VAR, postgres=not settings.DATABASE_URL, redis=False),
    ):
        try:
            yield
        finally:
            connections.close_all()


@contextmanager
def database() -> Iterator[None]:
    """The database, whether or not the site runs."""
    with ExitStack() as stack:
        with suppress(AlreadyRunningError):
            stack.enter_context(database_at_rest())
        yield

"""Provide a database to a command while the site is not running."""

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
    """Provide the database while nobody uses it, starting the embedded server if it is not running.

    For a server elsewhere only the caller can know who else uses it. Raises `AlreadyRunningError` when the site is
    running here.
    """
    with only_instance(settings.VAR), running_servers(settings.VAR, postgres=_is_to_start(), redis=False):
        try:
            yield
        finally:
            connections.close_all()


def _is_to_start() -> bool:
    return not settings.DATABASE_URL and not EmbeddedPostgres(settings.VAR).is_ready()


@contextmanager
def database() -> Iterator[None]:
    """Provide the database, whether or not the site is running."""
    with ExitStack() as stack:
        # If the site is running, its database is available already.
        with suppress(AlreadyRunningError):
            stack.enter_context(database_at_rest())
        yield

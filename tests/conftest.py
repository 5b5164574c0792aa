"""What every test may ask for: a real PostgreSQL and a real Redis, started at the first test that needs them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from django.conf import settings

from kernelsci_site.services.embedded import running_servers


@pytest.fixture(scope="session")
def servers() -> Iterator[None]:
    """Both servers, unless DATABASE_URL or REDIS_URL name others."""
    with running_servers(settings.VAR, postgres=not settings.DATABASE_URL, redis=not settings.REDIS_URL):
        yield


@pytest.fixture(scope="session")
def django_db_modify_db_settings(servers: None) -> None:
    """pytest-django asks for this before it creates the test database: the moment to have a server."""


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the run's folder. Servers are down by now: fixtures end before this."""
    shutil.rmtree(settings.VAR.root, ignore_errors=True)
    shutil.rmtree(settings.VAR.socket_folder, ignore_errors=True)

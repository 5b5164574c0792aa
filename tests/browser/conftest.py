"""Daphne as its own process on the test database, and pages that fail a test when something breaks in them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from playwright.sync_api import BrowserContext, Page

from optimizer.models import Membership, Team, TeamRole, User
from tests.browser.chromium import LAUNCH
from tests.factories import make_team
from tests.site.site_process import free_port

UP_WITHIN_S = 60.0
PASSWORD = "correct horse"


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """The system's Chromium, quiet."""
    return {**browser_type_launch_args, **LAUNCH}


@pytest.fixture(scope="session")
def daphne(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real Daphne that serves the test database."""
    port = free_port()
    log = tmp_path_factory.mktemp("daphne") / "log"
    command = [
        sys.executable,
        "-m",
        "daphne",
        "-b",
        "127.0.0.1",
        "-p",
        str(port),
        "kernelsci_site.asgi:application",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=settings.BASE_DIR, env=_environment(), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait_until_up(f"http://127.0.0.1:{port}", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def site(daphne: str, transactional_db: None) -> str:
    """The site, empty."""
    return daphne


@pytest.fixture
def member(site: str) -> User:
    """An operator of a team of their own."""
    user = User.objects.create_user("ada", password=PASSWORD)
    Membership.objects.create(team=make_team(), user=user, role=TeamRole.OPERATOR)
    return user


@pytest.fixture
def team(member: User) -> Team:
    """The member's team."""
    return member.teams.get()


@pytest.fixture
def sign_in(site: str, member: User) -> Callable[[BrowserContext], None]:
    """Gives a browser the member's session."""

    def give(context: BrowserContext) -> None:
        client = Client()
        client.force_login(member)
        value = client.cookies[settings.SESSION_COOKIE_NAME].value
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": value, "url": site}])

    return give


@pytest.fixture
def visit(site: str, page: Page, sign_in: Callable[[BrowserContext], None]) -> Iterator[Callable[[str], Page]]:
    """Opens a page as the member. Whatever goes wrong in it (a script, the policy) fails the test at its end."""
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
    page.on("console", lambda said: complaints.append(f"{page.url}: {said.text}") if said.type == "error" else None)
    sign_in(page.context)

    def go(address: str) -> Page:
        page.goto(site + address)
        return page

    yield go
    assert complaints == []


def _environment() -> dict[str, str]:
    entry = connection.settings_dict
    address = f"postgresql://{entry['USER']}:{entry['PASSWORD']}@/{entry['NAME']}?host={entry['HOST']}"
    if entry["PORT"]:
        address += f"&port={entry['PORT']}"
    return os.environ | {"DATABASE_URL": address, "DJANGO_SETTINGS_MODULE": "tests.settings"}


def _wait_until_up(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + UP_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/healthz", timeout=5):  # noqa: S310 - our own http
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"Daphne did not answer:\n{log.read_text(errors='replace')}")

"""Serve the test database with Daphne in a process of its own, and fail a test when something breaks in its pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import BrowserContext, Page, expect

from optimizer.models import Membership, Team, TeamRole, User
from tests.factories import make_team
from tests.site import served

PASSWORD = "correct horse"
# Playwright's five seconds are too short where other tests fill the processors; whoever is answered waits no longer.
expect.set_options(timeout=30_000)


@pytest.fixture(scope="session")
def daphne(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a real Daphne that serves the test database."""
    with served.daphne(tmp_path_factory.mktemp("daphne"), {"DATABASE_URL": served.database_url()}) as address:
        yield address


@pytest.fixture
def site(daphne: str, transactional_db: None) -> str:
    """Return the address of the site, which is empty."""
    return daphne


@pytest.fixture
def member(site: str) -> User:
    """Return an operator of a team of their own."""
    user = User.objects.create_user("ada", password=PASSWORD)
    Membership.objects.create(team=make_team(), user=user, role=TeamRole.OPERATOR)
    return user


@pytest.fixture
def team(member: User) -> Team:
    """Return the member's team."""
    return member.teams.get()


@pytest.fixture
def sign_in(site: str, member: User) -> Callable[[BrowserContext], None]:
    """Return a function that gives a browser the member's session."""

    def give(context: BrowserContext) -> None:
        client = Client()
        client.force_login(member)
        value = client.cookies[settings.SESSION_COOKIE_NAME].value
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": value, "url": site}])

    return give


@pytest.fixture
def visit(site: str, page: Page, sign_in: Callable[[BrowserContext], None]) -> Iterator[Callable[[str], Page]]:
    """Return a function that opens a page as the member. Whatever goes wrong in it (a script, the policy) fails the
    test at its end."""
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
    page.on("console", lambda said: complaints.append(f"{page.url}: {said.text}") if said.type == "error" else None)
    sign_in(page.context)

    def go(address: str) -> Page:
        page.goto(site + address)
        return page

    yield go
    assert complaints == []

"""The team that most tests are about, its people, a run of theirs, and a browser and a script at the site.

Everybody is in `team`; a test makes its outsiders itself. A module whose runs are further on redefines `run`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from optimizer.models import Run, Team, TeamRole, User
from tests.factories import make_run, make_team, make_user
from tests.llm_server import LlmServer, llm_server
from tests.optimizer.clients import Call, caller_of


@pytest.fixture
def team(db: None) -> Team:
    return make_team()


@pytest.fixture
def member(team: Team) -> User:
    """An operator of the team."""
    return make_user(team, TeamRole.OPERATOR)


@pytest.fixture
def owner(team: Team) -> User:
    return make_user(team, TeamRole.OWNER)


@pytest.fixture
def run(team: Team, member: User) -> Run:
    """A run that the member started; it waits to be advanced."""
    return make_run(team, member)


@pytest.fixture
def pages(client: Client, member: User) -> Client:
    """The test's browser, the member signed in to it."""
    client.force_login(member)
    return client


@pytest.fixture
def api(member: User) -> Call:
    """Calls the API as the member, with every scope."""
    return caller_of(member)


@pytest.fixture
def server() -> Iterator[LlmServer]:
    """A language model's server that answers what it is told to."""
    with llm_server() as running:
        yield running

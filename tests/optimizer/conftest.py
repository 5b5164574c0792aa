"""Provide the team that most tests are about, its people, a run of theirs, and a browser and a script at the site.

Everybody is in `team`; a test makes its outsiders itself. A module whose runs are further on redefines `run`.

Tests of a module share a run that has gone to its end: a test that asks for `finished` finds it
as it was made, in its `team` and started by its `member`, and changes it for itself alone (see `module_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from optimizer.models import Kernel, Run, Team, TeamRole, User
from tests.driven_runs import make_finished_run
from tests.factories import make_run, make_team, make_user, store_problems_and_targets
from tests.llm_server import LlmServer, llm_server
from tests.optimizer.clients import Call, caller_of


@pytest.fixture(scope="module")
def finished_run(module_rows: None) -> Run:
    """Make the rows of `finished` once for the module. Tests ask for `finished`."""
    team = make_team()
    return make_finished_run(team, make_user(team, TeamRole.OPERATOR))


@pytest.fixture
def finished(finished_run: Run, db: None) -> Run:
    """Return a run of `team` that the `member` started and that has gone to its end."""
    return Run.objects.get(pk=finished_run.pk)


@pytest.fixture
def best(finished: Run) -> Kernel:
    """Return the best kernel of `finished`."""
    assert finished.best_kernel is not None
    return finished.best_kernel


@pytest.fixture
def team(request: pytest.FixtureRequest, db: None) -> Team:
    """Return the team that the test is about; that of `finished` where the test asks for it."""
    if "finished" in request.fixturenames:
        return Team.objects.get(runs=request.getfixturevalue("finished_run"))
    return make_team()


@pytest.fixture
def member(request: pytest.FixtureRequest, team: Team) -> User:
    """Return an operator of the team; who started `finished` where the test asks for it."""
    if "finished" in request.fixturenames:
        return User.objects.get(pk=request.getfixturevalue("finished_run").created_by_id)
    return make_user(team, TeamRole.OPERATOR)


@pytest.fixture
def owner(team: Team) -> User:
    return make_user(team, TeamRole.OWNER)


@pytest.fixture
def run(team: Team, member: User) -> Run:
    """Return a run that the member started; it waits to be advanced."""
    return make_run(team, member)


@pytest.fixture
def pages(client: Client, member: User) -> Client:
    """Return the test's browser, with the member signed in to it."""
    client.force_login(member)
    return client


@pytest.fixture
def api(member: User) -> Call:
    """Return a function that calls the API as the member, with every scope."""
    return caller_of(member)


@pytest.fixture
def server() -> Iterator[LlmServer]:
    """Run a language model's server that answers what it is told to."""
    with llm_server() as running:
        yield running


@pytest.fixture(scope="module")
def shipped_problems(module_rows: None) -> None:
    """Store the shipped problems once for the module: they take longer than most tests."""
    store_problems_and_targets()

"""Make runs whose strategy has just asked its first questions of a model server, as copies of one that was driven."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optimizer.models import Provider, Run, Team, User
from optimizer.queries.budgets import Budget
from tests.driven_runs import copy_of
from tests.factories import drive, make_provider, make_run
from tests.llm_server import LlmServer


def make_asking_run(
    server: LlmServer, settings: dict[str, Any], budget: Budget | None = None, **provider: Any
) -> Run:
    """Create a run of `sampling` with these settings, whose provider is the server of the test."""
    budget = budget or Budget(evaluations=6)

    def make(team: Team, user: User | None) -> Iterator[Run]:
        make_provider(server, team, **provider)
        answered_by = {"default": {"provider": "tiny"}}
        run = make_run(team, user, strategy="sampling", settings=settings, providers=answered_by, budget=budget)
        yield drive(run, rounds=12)

    run = Run.objects.get(pk=copy_of(("asking", repr(settings), repr(budget), repr(provider)), make, None, None))
    # The copied provider names the server of the test that made the first run.
    Provider.objects.filter(team=run.team).update(base_url=server.url)
    return run

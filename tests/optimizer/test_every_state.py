"""Open every page of a run in each of its states, with and without a live runner, near and far, as every role.

Pages were opened in the states that their own tests make, and one that nobody had opened failed for every waiting run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone

from optimizer import queue
from optimizer.actions.run import do_pause_run, do_stop_run
from optimizer.calls.worker import answer
from optimizer.job_source import DatabaseJobSource
from optimizer.loop import advance
from optimizer.models import CallState, Evaluation, Job, JobState, Run, Runner, Target, Team, TeamRole
from optimizer.queries.budgets import Budget
from runners.job import Effort
from runners.worker import work_once
from tests.factories import drive, fake_evaluate, make_run, make_team, make_user, store_problems_and_targets
from tests.optimizer.clients import signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
ELSEWHERE = ("home", "runs", "runners", "inbox", "problems", "leaderboards", "notifications", "targets", "releases")
# What depends on runners, targets and roles: opened in every combination, the others in one.
CHANGING = ("run_page", "run_live", "run_workers", "run_plan", "run_kernels", "kernel_page", "calls", "run_budget")
ANSWERS = {200, 302, 403, 404, 405}
Making = Callable[..., Run]


@pytest.fixture(scope="module", autouse=True)
def problems(module_rows: None) -> None:
    store_problems_and_targets()


def claimed(run: Run) -> Run:
    """Have a runner claim the first of the run's jobs."""
    advance(run.pk)
    job = Job.objects.filter(evaluation__kernel__run=run, state=JobState.QUEUED).earliest("pk")
    assert queue.claim(job.queue, "test-runner") is not None
    return run


def asking(make: Making) -> Run:
    """Return a run whose agent asks a person."""
    run = make(strategy="sampling", providers={"default": {"provider": "inbox"}}, budget=Budget(evaluations=4))
    for _ in range(12):
        advance(run.pk)
        if run.calls.exists():
            break
        work_off(run)
    call = run.calls.get()
    answer(call.pk)
    call.refresh_from_db()
    assert call.state == CallState.WAITING
    return run


def work_off(run: Run, most: int = 50) -> None:
    """Do what is queued for the run."""
    for _ in range(most):
        job = Job.objects.filter(evaluation__kernel__run=run, state=JobState.QUEUED).first()
        if job is None or not work_once(DatabaseJobSource(), job.queue, "test-runner", fake_evaluate):
            return


def settling(make: Making) -> Run:
    """Return a run that measures its best kernels again."""
    run = make()
    for _ in range(20):
        advance(run.pk)
        if Evaluation.objects.filter(kernel__run=run, effort=Effort.CONFIRM.value).exists():
            break
        work_off(run)
    assert Evaluation.objects.filter(kernel__run=run, effort=Effort.CONFIRM.value, state="queued").exists()
    return run


def stopping(make: Making) -> Run:
    run = claimed(make())
    do_stop_run(None, run)
    return run


def paused(make: Making) -> Run:
    run = claimed(make())
    do_pause_run(None, run)
    return run


def stopped(make: Making) -> Run:
    run = make()
    do_stop_run(None, run)
    advance(run.pk)
    return run


def queued(make: Making) -> Run:
    run = make()
    advance(run.pk)
    return run


def failed(make: Making) -> Run:
    run = queued(make)
    Run.objects.filter(pk=run.pk).update(state="failed", stop_reason="It broke.", finished_at=timezone.now())
    return run


STATES: dict[str, Callable[[Making], Run]] = {
    "pending": lambda make: make(),
    "queued": queued,
    "running": lambda make: claimed(make()),
    "asking": asking,
    "paused": paused,
    "stopping": stopping,
    "stopped": stopped,
    "failed": failed,
    "settling": settling,
    "finished": lambda make: drive(make()),
}


def names(patterns: Any = None, within: str = "") -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the name and the parameters of every address of the site."""
    for one in get_resolver().url_patterns if patterns is None else patterns:
        if isinstance(one, URLResolver):
            if not one.namespace and one.app_name is None:
                yield from names(one.url_patterns)
        elif isinstance(one, URLPattern) and one.name:
            yield one.name, frozenset(one.pattern.converters)


def addresses(run: Run, wanted: tuple[str, ...] = ()) -> list[str]:
    """Return the addresses of all pages of a run, of one of its kernels and calls, or those of some names."""
    kernel, call = run.kernels.first(), run.calls.first()
    known = (
        {"run_id": run.pk} | ({"number": kernel.number} if kernel else {}) | ({"call_id": call.pk} if call else {})
    )
    found = {name: given for name, given in names() if "run_id" in given and given <= set(known)}
    pages = [
        reverse(name, kwargs={one: known[one] for one in given})
        for name, given in found.items()
        if name in wanted or not wanted
    ]
    return pages + [reverse(name) for name in ELSEWHERE]


def open_all(client: Client, pages: list[str]) -> None:
    """Open pages. The test's browser raises what would have been an error of the server."""
    answers = {page: client.get(page).status_code for page in pages}
    assert set(answers.values()) <= ANSWERS, answers


@pytest.mark.parametrize("state", STATES)
def test_every_page_opens_in_every_state_for_every_role(state: str) -> None:
    near, far = Target.objects.get(key="cpu"), Target.objects.get(key="sm_90")
    visits = {near: [(True, TeamRole.OPERATOR), (False, TeamRole.VIEWER)], far: [(False, TeamRole.OWNER)]}
    # These take a search to its end, which no page sees by its target.
    for target in [near] if state in ("settling", "finished") else [near, far]:
        team = make_team()
        run = STATES[state](making(team, make_user(team), target))
        run.refresh_from_db()
        for is_live, role in visits[target]:
            Runner.objects.all().delete()
            if is_live:
                queues = [f"bench.{target.key}", "build"]
                Runner.objects.create(name="r", target=target, heartbeat_at=timezone.now(), queues=queues)
            client = signed_in(make_user(team, role))
            assert client.get(reverse("run_page", args=[run.pk])).status_code == 200
            open_all(client, addresses(run, () if is_live else CHANGING))


def making(team: Team, starter: Any, target: Target) -> Making:
    return lambda **changes: make_run(
        team, starter, **({"target": target, "budget": Budget(evaluations=2)} | changes)
    )

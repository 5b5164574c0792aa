"""Start the first runs of a new installation: real, small, and without any API key or GPU."""

from __future__ import annotations

from dataclasses import replace

from optimizer.actions.problem import do_sync_shipped_problems
from optimizer.actions.run import NewRun, do_start_run
from optimizer.actions.target import do_sync_targets
from optimizer.calls.record import load_record
from optimizer.models import Membership, Problem, Run, Target, Team, TeamRole, User
from optimizer.queries.budgets import Budget

DEMO_PROBLEM = "softmax_rows"
DEMO_EVALUATIONS = 40
DEMO_RECORD = "scientist-softmax_rows"


def do_make_default_team() -> Team:
    """Create the default team if necessary, with all administrators as owners."""
    team, _ = Team.objects.get_or_create(slug="default", defaults={"name": "Default"})
    for user in User.objects.filter(is_superuser=True):
        Membership.objects.get_or_create(team=team, user=user, defaults={"role": TeamRole.OWNER})
    return team


def do_start_demo() -> list[Run]:
    """Start two demo runs: one tunes softmax on this processor, the other replays recorded agents.

    The replayed answers come from a recording, but the kernels in them are built, checked and timed on this machine.
    """
    # A new database has neither targets nor problems, and the demo may be the first command that needs them.
    do_sync_targets()
    do_sync_shipped_problems()
    team = do_make_default_team()
    record = load_record(team, DEMO_RECORD)
    tuned = replace(
        _demo(team, "Demo: tune softmax on this processor"), budget=Budget(evaluations=DEMO_EVALUATIONS)
    )
    replayed = replace(
        _demo(team, f"Demo: {record.title}, recorded answers"),
        strategy=record.strategy,
        # Runs were recorded without tools before there were any.
        settings={"tools": "none", **record.settings},
        seed=record.seed,
        providers={"default": {"provider": "replay", "record": DEMO_RECORD}},
        budget=Budget(evaluations=record.evaluations),
    )
    administrator = User.objects.filter(is_superuser=True).order_by("pk").first()
    return [do_start_run(administrator, new) for new in (tuned, replayed)]


def _demo(team: Team, title: str) -> NewRun:
    return NewRun(
        team=team,
        title=title,
        problem_version=Problem.objects.get(slug=DEMO_PROBLEM).latest(),
        target=Target.objects.get(key="cpu"),
        strategy="tune",
        is_demo=True,
    )

"""The first run of a fresh installation: real, small, and without any key or GPU."""

from __future__ import annotations

from optimizer.actions.problem import do_sync_shipped_problems
from optimizer.actions.run import Budget, NewRun, do_start_run
from optimizer.actions.target import do_sync_targets
from optimizer.models import Membership, Problem, Run, Target, Team, TeamRole, User

DEMO_PROBLEM = "softmax_rows"
DEMO_EVALUATIONS = 40


def do_make_default_team() -> Team:
    """The team that everybody of a fresh installation is in, with the administrators as owners."""
    team, _ = Team.objects.get_or_create(slug="default", defaults={"name": "Default"})
    for user in User.objects.filter(is_superuser=True):
        Membership.objects.get_or_create(team=team, user=user, defaults={"role": TeamRole.OWNER})
    return team


def do_start_demo() -> Run:
    """Tune softmax on this processor."""
    do_sync_targets()
    do_sync_shipped_problems()
    team = do_make_default_team()
    return do_start_run(
        User.objects.filter(is_superuser=True).order_by("pk").first(),
        NewRun(
            team=team,
            title="Demo: tuning softmax on this processor",
            problem_version=Problem.objects.get(slug=DEMO_PROBLEM).latest(),
            target=Target.objects.get(key="cpu"),
            strategy="tune",
            budget=Budget(evaluations=DEMO_EVALUATIONS),
            is_demo=True,
        ),
    )

"""Say what a person has still to do to get to know the product."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.models import Problem, Provider, Review, Run, User
from optimizer.models.problem_upload import origin_of


@dataclass(frozen=True)
class FirstStep:
    """Hold one item of the checklist: what to do, the name of the page where, and whether it is done."""

    title: str
    note: str
    page: str
    is_done: bool


def first_steps(user: User) -> list[FirstStep]:
    """Return the checklist of a new person. Every item is derived from rows, so that nothing has to be ticked."""
    teams = user.teams.values("pk")
    uploaded = Problem.objects.filter(origin=origin_of(user)).exists()
    return [
        FirstStep("Connect a model", "An OpenAI-compatible server, or your own answers in the inbox.", "providers",
                  Provider.objects.filter(team__in=teams).exists()),
        FirstStep("Add a problem", "Paste a PyTorch module; it is checked in a sandbox.", "problem_new", uploaded),
        FirstStep("Start a run", "Nine evaluations of a tuner need no model.", "start_run",
                  Run.objects.filter(created_by=user, is_demo=False).exists()),
        FirstStep("Review a kernel", "Open a run, compare two kernels and comment on a line.", "runs",
                  Review.objects.published().filter(author=user).exists()),
    ]  # fmt: skip


def demo_run(user: User) -> Run | None:
    """Return the newest demo run that the person may see."""
    visible = Run.objects.visible_to(user).order_by().values("pk")
    return Run.objects.filter(pk__in=visible, is_demo=True).order_by("-pk").first()

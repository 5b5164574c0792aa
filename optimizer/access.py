"""Fetch rows with authorisation: what a person may not see does not exist for them."""

from __future__ import annotations

from typing import Literal

from django.http import Http404

from optimizer.models import Campaign, Comment, Kernel, Run, Team, TeamRole, Thread, User

Verb = Literal["view", "comment", "operate", "own"]

ROLE_NEEDED: dict[Verb, TeamRole] = {
    "view": TeamRole.VIEWER,
    "comment": TeamRole.REVIEWER,
    "operate": TeamRole.OPERATOR,
    "own": TeamRole.OWNER,
}


def access_run(user: User, run_id: int, verb: Verb) -> Run:
    """Return the run if the person may use it in that way. Raises Http404 otherwise, whether it exists or not."""
    run = Run.objects.visible_to(user).for_dashboard().filter(pk=run_id).first()
    # The same error for both cases: a different one would reveal which runs exist.
    if run is None or not offers(user, run, verb):
        raise Http404("There is no such run.")
    return run


def access_kernel(user: User, run_id: int, number: int, verb: Verb) -> Kernel:
    """Return a kernel of a run that the person may use in that way. Raises Http404 otherwise."""
    run = access_run(user, run_id, verb)
    kernels = Kernel.objects.select_related("hypothesis", "call", "author", "evaluation")
    kernel = kernels.filter(run=run, number=number).first()
    if kernel is None:
        raise Http404("There is no such kernel.")
    # Reuse the run that was authorised, with its joins, instead of fetching it again.
    kernel.run = run
    return kernel


def access_thread(user: User, run_id: int, thread_id: int, verb: Verb) -> Thread:
    """Return a thread that the person can read, of a run that they may use in that way. Raises Http404 otherwise."""
    run = access_run(user, run_id, verb)
    threads = Thread.objects.visible_to(user).select_related("kernel", "hypothesis")
    thread = threads.filter(run=run, pk=thread_id).first()
    if thread is None:
        raise Http404("There is no such thread.")
    thread.run = run
    return thread


def access_comment(user: User, run_id: int, comment_id: int) -> Comment:
    """Return the person's own comment in a run on which they may still comment. Raises Http404 otherwise."""
    run = access_run(user, run_id, "comment")
    comments = Comment.objects.select_related("thread__kernel", "review")
    comment = comments.filter(pk=comment_id, thread__run=run, author=user).first()
    if comment is None:
        raise Http404("There is no such comment of yours.")
    comment.thread.run = run
    return comment


def may(user: User, run: Run, verb: Verb) -> bool:
    """Return whether the person's role in the run's team is enough for the verb, as it stands now."""
    return may_in_team(user, run.team, verb)


def offers(user: User, run: Run, verb: Verb) -> bool:
    """Return whether to show an action on a page.

    A page asks up to six times, so the role is looked up once for each Run object. The action itself checks the
    current role with `may`.
    """
    if user.pk not in run.known_roles:
        run.known_roles[user.pk] = user.role_in(run.team)
    return _is_enough(run.known_roles[user.pk], verb)


def may_in_team(user: User, team: Team, verb: Verb) -> bool:
    """Return whether the person's role in the team is enough for the verb."""
    return _is_enough(user.role_in(team), verb)


def _is_enough(role: TeamRole | None, verb: Verb) -> bool:
    return role is not None and role.rank >= ROLE_NEEDED[verb].rank


def access_campaign(user: User, campaign_id: int, verb: Verb) -> Campaign:
    """Return the campaign if the person may use it in that way. Raises Http404 otherwise, as `access_run` does."""
    rows = Campaign.objects.visible_to(user).select_related("suite", "target", "team", "created_by")
    campaign = rows.filter(pk=campaign_id).first()
    if campaign is None or not may_in_team(user, campaign.team, verb):
        raise Http404("There is no such campaign.")
    return campaign


def access_team(user: User, slug: str, role: TeamRole = TeamRole.VIEWER) -> Team:
    """Return the team if the person has at least that role in it. Raises Http404 otherwise."""
    team = Team.objects.filter(slug=slug).first()
    # One check for "does not exist" and "not a member", so that team names cannot be guessed.
    held = user.role_in(team) if team is not None else None
    if team is None or held is None or held.rank < role.rank:
        raise Http404("There is no such team.")
    return team

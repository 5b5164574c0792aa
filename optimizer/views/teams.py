"""Show teams, and manage members, invitations and service accounts."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from optimizer.access import access_team
from optimizer.actions import team as actions
from optimizer.forms.team import InviteForm, NewTeamForm, RoleForm, ServiceAccountForm, TeamRulesForm
from optimizer.models import Invitation, Membership, Team, TeamRole, User
from optimizer.views.frame import CURRENT_TEAM
from optimizer.views.refusals import attempt, filled_in
from optimizer.views.signed_in import user_of


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def teams(request: HttpRequest) -> HttpResponse:
    """List the person's teams; on POST, create one."""
    user = user_of(request)
    form = NewTeamForm(request.POST if request.method == "POST" else None)
    if request.method == "POST":
        made = filled_in(form, lambda: actions.do_make_team(user, form.cleaned_data["name"]))
        if made is not None:
            return redirect("team_page", slug=made.slug)
    mine = Membership.objects.filter(user=user).select_related("team").order_by("team__name")
    others = Team.objects.exclude(memberships__user=user).order_by("name") if user.is_superuser else []
    return render(request, "teams/list.html", {"memberships": mine, "others": others, "form": form})


@login_required
@require_POST
def switch_team(request: HttpRequest) -> HttpResponse:
    """Show the runs of one team only, or of all."""
    slug = request.POST.get("team", "")
    if slug:
        access_team(user_of(request), slug)
    # Checked above: the session must not name a team that the person cannot see.
    request.session[CURRENT_TEAM] = slug
    return redirect("runs")


@login_required
@never_cache
@require_safe
def team_page(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the members and rules of a team."""
    return _page(request, access_team(user_of(request), slug))


@login_required
@require_POST
def team_rules(request: HttpRequest, slug: str) -> HttpResponse:
    """Change the team's name or its rules for releases."""
    team = _owned(request, slug)
    form = TeamRulesForm(request.POST, instance=Team.objects.get(pk=team.pk))
    if filled_in(form, lambda: actions.do_change_team(user_of(request), team, **form.cleaned_data)) is None:
        return _page(request, team, rules=form)
    return redirect("team_page", slug=slug)


@login_required
@require_POST
def member_role(request: HttpRequest, slug: str, user_id: int) -> HttpResponse:
    """Change a member's role."""
    team = _owned(request, slug)
    member = _member(team, user_id)
    form = RoleForm(request.POST)
    if not form.is_valid():
        raise Http404
    role = TeamRole(form.cleaned_data["role"])
    said = f"{member} is now {role.label.lower()}."
    attempt(request, lambda: actions.do_set_role(user_of(request), team, member, role), said)
    return redirect("team_page", slug=slug)


@login_required
@require_POST
def member_remove(request: HttpRequest, slug: str, user_id: int) -> HttpResponse:
    """Remove a member, or leave the team."""
    user = user_of(request)
    team = access_team(user, slug, TeamRole.VIEWER if user.pk == user_id else TeamRole.OWNER)
    member = _member(team, user_id)
    done = attempt(
        request, lambda: actions.do_remove_member(user, team, member), f"{member} is no longer in {team}."
    )
    return redirect("teams") if done and user.pk == user_id else redirect("team_page", slug=slug)


@login_required
@never_cache
@require_POST
def invite(request: HttpRequest, slug: str) -> HttpResponse:
    """Create an invitation for one person; its link is shown once."""
    team = _owned(request, slug)
    form = InviteForm(request.POST)

    def make() -> tuple[Invitation, str]:
        entered = form.cleaned_data
        return actions.do_invite(
            user_of(request), team, TeamRole(entered["role"]), entered["note"], entered["days"]
        )

    made = filled_in(form, make)
    if made is None:
        return _page(request, team, invite=form)
    return _page(request, team, invitation=made[0], link=request.build_absolute_uri(f"/join/{made[1]}/"))


@login_required
@require_POST
def invitation_revoke(request: HttpRequest, slug: str, invitation_id: int) -> HttpResponse:
    """Revoke an unused invitation."""
    team = _owned(request, slug)
    row = get_object_or_404(Invitation.objects.select_related("team"), pk=invitation_id, team=team)
    attempt(request, lambda: actions.do_revoke_invitation(user_of(request), row), "That link no longer works.")
    return redirect("team_page", slug=slug)


@login_required
@require_POST
def service_account_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Create an account for a program."""
    team = _owned(request, slug)
    form = ServiceAccountForm(request.POST)

    def make() -> User:
        role = TeamRole(form.cleaned_data["role"])
        return actions.do_make_service_account(user_of(request), team, form.cleaned_data["name"], role)

    if filled_in(form, make) is None:
        return _page(request, team, service=form)
    return redirect("team_page", slug=slug)


@login_required
@require_POST
def service_account_end(request: HttpRequest, slug: str, user_id: int) -> HttpResponse:
    """Disable a service account and revoke its tokens."""
    team = _owned(request, slug)
    account = _member(team, user_id)
    said = f"{account} and its tokens no longer work."
    attempt(request, lambda: actions.do_end_service_account(user_of(request), team, account), said)
    return redirect("team_page", slug=slug)


def _page(request: HttpRequest, team: Team, **more: Any) -> HttpResponse:
    user = user_of(request)
    owns = user.role_in(team) == TeamRole.OWNER
    context: dict[str, Any] = {
        "team": team,
        "owns": owns,
        "my_role": user.role_in(team),
        "roles": TeamRole.choices,
        "people": _members(team).filter(user__is_service_account=False),
    }
    if owns:
        context |= {
            "accounts": _members(team).filter(user__is_service_account=True).prefetch_related("user__api_tokens"),
            "invitations": team.invitations.open().select_related("created_by"),
            "rules": TeamRulesForm(instance=team),
            "invite": InviteForm(),
            "service": ServiceAccountForm(),
        }
    return render(request, "teams/page.html", context | more, status=422 if _has_errors(more) else 200)


def _has_errors(more: dict[str, Any]) -> bool:
    return any(getattr(value, "errors", None) for value in more.values())


def _owned(request: HttpRequest, slug: str) -> Team:
    return access_team(user_of(request), slug, TeamRole.OWNER)


def _member(team: Team, user_id: int) -> User:
    return get_object_or_404(User, pk=user_id, memberships__team=team)


def _members(team: Team) -> QuerySet[Membership]:
    return team.memberships.select_related("user").order_by("user__username")

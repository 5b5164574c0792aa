"""Test who is in a team, how they come in, and what happens to what they see when they leave."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable

import pytest
from django.core.exceptions import ValidationError
from django.db import DatabaseError, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from optimizer.actions import team as actions
from optimizer.actions.notification import do_follow
from optimizer.actions.token import do_make_token, do_revoke_token
from optimizer.models import (
    ApiToken,
    AuditAction,
    AuditEntry,
    Follow,
    Invitation,
    Membership,
    Run,
    Team,
    TeamRole,
    User,
)
from tests.factories import make_run, make_team, make_user

pytestmark = pytest.mark.django_db
STRONG = "a long and odd sentence 7"


def invite(owner: User, team: Team, role: TeamRole = TeamRole.REVIEWER) -> tuple[Invitation, str]:
    return actions.do_invite(owner, team, role, "for Grace", 7)


# invitations


def test_an_invitation_lets_one_person_in_once(client: Client, team: Team, owner: User) -> None:
    _, token = invite(owner, team)
    fields = {"username": "grace", "password1": STRONG, "password2": STRONG}
    assert client.post(reverse("join", args=[token]), fields).status_code == 302
    assert Membership.objects.get(user__username="grace", team=team).role == TeamRole.REVIEWER
    second = Client().post(reverse("join", args=[token]), fields | {"username": "eve"})
    assert second.status_code == 404
    assert not User.objects.filter(username="eve").exists()


def test_only_the_hash_of_an_invitation_is_stored(team: Team, owner: User) -> None:
    row, token = invite(owner, team)
    assert token not in str(Invitation.objects.filter(pk=row.pk).values())


@pytest.mark.parametrize("how", ["expired", "revoked", "made up"])
def test_a_dead_link_says_nothing_of_the_team(client: Client, team: Team, owner: User, how: str) -> None:
    row, token = invite(owner, team)
    if how == "expired":
        Invitation.objects.filter(pk=row.pk).update(expires_at=timezone.now() - dt.timedelta(seconds=1))
    elif how == "revoked":
        actions.do_revoke_invitation(owner, row)
    else:
        token = "x" * 43
    answer = client.get(reverse("join", args=[token]))
    assert answer.status_code == 404
    assert team.name not in answer.content.decode()


def test_looking_at_an_invitation_does_not_use_it_up(client: Client, team: Team, owner: User) -> None:
    _, token = invite(owner, team)
    assert team.name in client.get(reverse("join", args=[token])).content.decode()
    assert Invitation.find(token) is not None


def test_of_two_people_with_one_link_one_gets_in(team: Team, owner: User) -> None:
    row, _ = invite(owner, team)
    actions.do_accept_invitation(make_user(), row)
    with pytest.raises(ValidationError, match="used"):
        actions.do_accept_invitation(make_user(), row)


def test_an_invitation_never_lowers_a_role(team: Team, owner: User) -> None:
    row, _ = invite(owner, team, TeamRole.VIEWER)
    actions.do_accept_invitation(owner, row)
    assert owner.role_in(team) == TeamRole.OWNER


def test_guessing_links_is_slowed_down(client: Client, team: Team, owner: User) -> None:
    _, token = invite(owner, team)
    client.defaults["REMOTE_ADDR"] = "203.0.113.77"
    for number in range(5):
        client.get(reverse("join", args=[f"guess-{number}"]))
    assert client.get(reverse("join", args=[token])).status_code == 404


def test_a_weak_password_makes_no_account(client: Client, team: Team, owner: User) -> None:
    _, token = invite(owner, team)
    answer = client.post(reverse("join", args=[token]), {"username": "grace", "password1": "12", "password2": "12"})
    assert answer.status_code == 200
    assert not User.objects.filter(username="grace").exists()
    assert Invitation.find(token) is not None


# members


def test_the_last_owner_cannot_leave_or_step_down(client: Client, team: Team, owner: User) -> None:
    ways: tuple[Callable[[], object], ...] = (
        lambda: actions.do_remove_member(owner, team, owner),
        lambda: actions.do_set_role(owner, team, owner, TeamRole.VIEWER),
    )
    for act in ways:
        with pytest.raises(ValidationError, match="Make someone else owner"):
            act()
    assert owner.role_in(team) == TeamRole.OWNER
    make_user(team, TeamRole.OWNER)
    actions.do_remove_member(owner, team, owner)
    assert owner.role_in(team) is None


def test_an_owner_who_is_switched_off_does_not_count(team: Team, owner: User) -> None:
    other = make_user(team, TeamRole.OWNER)
    User.objects.filter(pk=other.pk).update(is_active=False)
    with pytest.raises(ValidationError, match="Make someone else owner"):
        actions.do_remove_member(owner, team, owner)


def test_only_owners_change_members(team: Team, owner: User) -> None:
    operator, viewer = make_user(team, TeamRole.OPERATOR), make_user(team, TeamRole.VIEWER)
    for act in (
        lambda: actions.do_set_role(operator, team, viewer, TeamRole.OWNER),
        lambda: actions.do_remove_member(operator, team, viewer),
        lambda: actions.do_invite(operator, team, TeamRole.OWNER, "", 7),
        lambda: actions.do_make_service_account(operator, team, "ci", TeamRole.VIEWER),
        lambda: actions.do_change_team(operator, team, "x", 1, False),
    ):
        with pytest.raises(ValidationError, match="owners"):
            act()


def test_who_leaves_takes_no_follows_and_no_news_along(team: Team, owner: User) -> None:
    viewer = make_user(team, TeamRole.VIEWER)
    run = make_run(team, owner)
    do_follow(viewer, run)
    actions.do_remove_member(owner, team, viewer)
    assert not Follow.objects.filter(user=viewer).exists()
    assert not Run.objects.visible_to(viewer).exists()


def test_members_see_roles_and_owners_see_forms(client: Client, team: Team, owner: User) -> None:
    viewer = make_user(team, TeamRole.VIEWER)
    client.force_login(viewer)
    assert "Create invitation link" not in client.get(reverse("team_page", args=[team.slug])).content.decode()
    client.force_login(owner)
    assert "Create invitation link" in client.get(reverse("team_page", args=[team.slug])).content.decode()


def test_the_link_is_shown_once(client: Client, team: Team, owner: User) -> None:
    client.force_login(owner)
    answer = client.post(reverse("invite", args=[team.slug]), {"role": "viewer", "note": "Grace", "days": "7"})
    link = re.search(r"/join/([\w-]{43})/", answer.content.decode())
    assert link is not None
    assert Invitation.find(link[1]) is not None
    assert "/join/" not in client.get(reverse("team_page", args=[team.slug])).content.decode()


def test_switching_teams_narrows_the_table_of_runs(client: Client, team: Team, owner: User) -> None:
    other = make_team()
    Membership.objects.create(team=other, user=owner, role=TeamRole.OPERATOR)
    here, there = make_run(team, owner), make_run(other, owner)
    client.force_login(owner)
    client.post(reverse("switch_team"), {"team": other.slug})
    assert list(client.get(reverse("runs")).context["runs"]) == [there]
    client.post(reverse("switch_team"), {"team": ""})
    assert set(client.get(reverse("runs")).context["runs"]) == {here, there}
    assert client.post(reverse("switch_team"), {"team": make_team().slug}).status_code == 404


def test_a_team_one_has_left_narrows_nothing_open(client: Client, team: Team, owner: User) -> None:
    other = make_team()
    Membership.objects.create(team=other, user=owner, role=TeamRole.OPERATOR)
    make_run(other, owner)
    client.force_login(owner)
    client.post(reverse("switch_team"), {"team": other.slug})
    Membership.objects.filter(team=other, user=owner).delete()
    assert list(client.get(reverse("runs")).context["runs"]) == []


# private runs


def test_a_private_run_is_its_starters_and_the_owners(client: Client, team: Team, owner: User) -> None:
    starter, colleague = make_user(team), make_user(team)
    run = make_run(team, starter)
    client.force_login(starter)
    client.post(reverse("run_privacy", args=[run.pk]), {"private": "on"})
    seen = {user.pk: Run.objects.visible_to(user).exists() for user in (starter, owner, colleague)}
    assert seen == {starter.pk: True, owner.pk: True, colleague.pk: False}
    client.force_login(colleague)
    assert client.post(reverse("run_privacy", args=[run.pk]), {"private": "off"}).status_code == 404


def test_an_operator_does_not_hide_the_run_of_another(client: Client, team: Team) -> None:
    run = make_run(team, make_user(team))
    client.force_login(make_user(team))
    client.post(reverse("run_privacy", args=[run.pk]), {"private": "on"})
    run.refresh_from_db()
    assert run.is_private is False


# service accounts


def test_a_service_account_has_no_password_and_owns_nothing(team: Team, owner: User) -> None:
    account = actions.do_make_service_account(owner, team, "nightly", TeamRole.OPERATOR)
    assert not account.has_usable_password()
    with pytest.raises(ValidationError, match="cannot own"):
        actions.do_set_role(owner, team, account, TeamRole.OWNER)
    with pytest.raises(ValidationError, match="cannot own"):
        actions.do_make_service_account(owner, team, "root", TeamRole.OWNER)


def test_an_owner_makes_and_ends_a_service_accounts_tokens(client: Client, team: Team, owner: User) -> None:
    account = actions.do_make_service_account(owner, team, "nightly", TeamRole.OPERATOR)
    client.force_login(owner)
    address = reverse("service_tokens", args=[team.slug, account.pk])
    answer = client.post(address, {"name": "ci", "scopes": ["read"], "days": "30"})
    secret = re.search(r"ks_[\w-]+", answer.content.decode())
    assert secret is not None
    token = ApiToken.find(secret[0])
    assert token is not None
    assert token.user == account
    actions.do_end_service_account(owner, team, account)
    assert ApiToken.find(secret[0]) is None


def test_nobody_else_makes_tokens_for_an_account(team: Team, owner: User) -> None:
    account = actions.do_make_service_account(owner, team, "nightly", TeamRole.OPERATOR)
    token, _ = do_make_token(account, "ci", ["read"], by=owner)
    for stranger in (make_user(team), make_user(make_team(), TeamRole.OWNER)):
        with pytest.raises(ValidationError, match="not your token"):
            do_make_token(account, "mine", ["read"], by=stranger)
        with pytest.raises(ValidationError, match="not your token"):
            do_revoke_token(stranger, token)
    with pytest.raises(ValidationError, match="not your token"):
        do_make_token(make_user(team), "theirs", ["read"], by=owner)


# the log


def test_what_matters_is_in_the_log_with_names_and_without_secrets(team: Team, owner: User) -> None:
    invitation, secret = invite(owner, team)
    member = make_user()
    actions.do_accept_invitation(member, invitation)
    actions.do_set_role(owner, team, member, TeamRole.OPERATOR)
    run = make_run(team, member)
    _, token = do_make_token(member, "laptop", ["read"])
    actions.do_remove_member(owner, team, member)
    entries = list(AuditEntry.objects.of_team(team).order_by("pk"))
    assert [entry.action for entry in entries] == [
        AuditAction.INVITATION_MADE, AuditAction.MEMBER_ADDED, AuditAction.MEMBER_ROLE, AuditAction.RUN_STARTED,
        AuditAction.TOKEN_MADE, AuditAction.MEMBER_REMOVED,
    ]  # fmt: skip
    assert entries[3].run_id == run.pk
    assert entries[2].details == {"before": "reviewer", "after": "operator"}
    dump = str([vars(entry) for entry in entries])
    assert secret not in dump
    assert token not in dump


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE optimizer_auditentry SET actor_name = 'x'",
        "DELETE FROM optimizer_auditentry",
        "SET LOCAL kernelsci.may_empty_audit = off; TRUNCATE optimizer_auditentry",
    ],
)
def test_the_database_refuses_to_change_the_log(team: Team, owner: User, statement: str) -> None:
    from django.db import connection

    invite(owner, team)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert AuditEntry.objects.of_team(team).count() == 1


def test_the_log_outlives_the_people_and_the_run_in_it(team: Team, owner: User) -> None:
    member = make_user(team)
    run = make_run(team, member)
    name, number = member.username, run.pk
    run.delete()
    member.delete()
    entry = AuditEntry.objects.get(action=AuditAction.RUN_STARTED, run_id=number)
    assert entry.actor_name == name


def test_the_log_is_exported_whole_and_inert(client: Client, team: Team, owner: User) -> None:
    actions.do_invite(owner, team, TeamRole.VIEWER, "=cmd|'/c calc'!A1", 7)
    client.force_login(owner)
    table = b"".join(client.get(reverse("audit_csv", args=[team.slug])).streaming_content).decode()  # type: ignore[attr-defined]
    assert ",'=cmd" in table or ",\"'=cmd" in table
    lines = b"".join(client.get(reverse("audit_jsonl", args=[team.slug])).streaming_content).decode()  # type: ignore[attr-defined]
    assert len(lines.splitlines()) == 3  # the invitation, and both exports

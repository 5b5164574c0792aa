"""Change teams and their members. A change of rights reaches the person's open sockets at once."""

from __future__ import annotations

import datetime as dt

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.text import slugify

from optimizer.actions.audit import log_action
from optimizer.events.sockets import recheck_access
from optimizer.models import (
    ApiToken,
    AuditAction,
    Follow,
    Invitation,
    Membership,
    Notification,
    Run,
    Team,
    TeamRole,
    User,
)

MAX_OPEN_INVITATIONS = 50
MAX_SERVICE_ACCOUNTS = 20
INVITATION_DAYS = (1, 7, 30)


def do_make_team(user: User, name: str) -> Team:
    """Create a team with the person as its owner. Raises ValidationError."""
    slug = slugify(name)[:50]
    if not slug:
        raise ValidationError({"name": "A name needs letters or digits."})
    if user.is_service_account:
        raise ValidationError("Service accounts cannot create teams.")
    try:
        with transaction.atomic():
            team = Team.objects.create(name=name.strip()[:100], slug=slug)
            Membership.objects.create(team=team, user=user, role=TeamRole.OWNER)
            log_action(AuditAction.TEAM_MADE, user, team, team.name)
    except IntegrityError as error:
        raise ValidationError({"name": "A team with this name exists."}) from error
    return team


def do_change_team(user: User, team: Team, name: str, approvals_needed: int, rerun_needed: bool) -> Team:
    """Change the name or the rules for releases. Raises ValidationError."""
    _check_owner(user, team)
    if not name.strip() or not 1 <= approvals_needed <= 9:
        raise ValidationError("Enter a name, and between 1 and 9 approvals.")
    rules = {"approvals_needed": approvals_needed, "rerun_needed": rerun_needed}
    with transaction.atomic():
        before = {key: getattr(team, key) for key in rules}
        Team.objects.filter(pk=team.pk).update(name=name.strip()[:100], **rules)
        log_action(AuditAction.TEAM_CHANGED, user, team, name.strip()[:100], before=before, after=rules)
    team.refresh_from_db()
    return team


def do_set_role(user: User, team: Team, member: User, role: TeamRole) -> None:
    """Change a member's role. Raises ValidationError, also where the team would have no owner."""
    _check_owner(user, team)
    with transaction.atomic():
        membership = _locked_membership(team, member)
        if role != TeamRole.OWNER:
            _check_not_last_owner(membership)
        if member.is_service_account and role == TeamRole.OWNER:
            raise ValidationError("A service account cannot own a team.")
        before, membership.role = membership.role, role
        membership.save(update_fields=["role"])
        log_action(AuditAction.MEMBER_ROLE, user, team, member.username, before=before, after=role.value)
        recheck_access(member.pk)


def do_remove_member(user: User, team: Team, member: User) -> None:
    """Remove a member, or leave the team. Raises ValidationError for the last owner."""
    leaves = user.pk == member.pk
    if not leaves:
        _check_owner(user, team)
    with transaction.atomic():
        membership = _locked_membership(team, member)
        _check_not_last_owner(membership)
        membership.delete()
        Notification.objects.filter(user=member, run__team=team).delete()
        # Otherwise events of the team's runs would still create notifications for an outsider.
        Follow.objects.filter(user=member, run__team=team).delete()
        log_action(AuditAction.MEMBER_LEFT if leaves else AuditAction.MEMBER_REMOVED, user, team, member.username)
        recheck_access(member.pk)


def do_invite(user: User, team: Team, role: TeamRole, note_text: str, days: int) -> tuple[Invitation, str]:
    """Create an invitation for one person. Return it with its token, which cannot be read again.

    Raises ValidationError.
    """
    _check_owner(user, team)
    if days not in INVITATION_DAYS:
        raise ValidationError({"days": "Choose 1, 7 or 30 days."})
    if team.invitations.open().count() >= MAX_OPEN_INVITATIONS:
        raise ValidationError(f"At most {MAX_OPEN_INVITATIONS} open invitations. Revoke some first.")
    with transaction.atomic():
        made = Invitation.make(team, role, user, note_text.strip()[:200], timezone.now() + dt.timedelta(days=days))
        log_action(AuditAction.INVITATION_MADE, user, team, str(made[0]), role=role.value, days=days)
    return made


def do_revoke_invitation(user: User, invitation: Invitation) -> None:
    """End an unused invitation. Raises ValidationError for anybody but an owner of the team."""
    _check_owner(user, invitation.team)
    with transaction.atomic():
        if invitation.revoke():
            log_action(AuditAction.INVITATION_REVOKED, user, invitation.team, str(invitation))


def do_accept_invitation(user: User, invitation: Invitation) -> Membership:
    """Join the team. An existing higher role is never lowered. Raises ValidationError."""
    if user.is_service_account:
        raise ValidationError("Service accounts cannot accept invitations.")
    with transaction.atomic():
        # The claim and the membership are one transaction, so a failure does not use up the link.
        if not invitation.claim(user):
            raise ValidationError("This invitation was used or revoked, or has expired.")
        membership, added = Membership.objects.select_for_update().get_or_create(
            team=invitation.team, user=user, defaults={"role": invitation.role}
        )
        if not added and TeamRole(invitation.role).rank > TeamRole(membership.role).rank:
            membership.role = invitation.role
            membership.save(update_fields=["role"])
        log_action(AuditAction.MEMBER_ADDED, user, invitation.team, user.username, role=membership.role)
        recheck_access(user.pk)
    return membership


def do_register(invitation: Invitation, username: str, password: str) -> User:
    """Create an account for the holder of an invitation and join its team.

    The caller has validated user name and password. Raises ValidationError.
    """
    try:
        with transaction.atomic():
            # In one transaction with joining: a used invitation must not leave an account without a team.
            user = User.objects.create_user(username, password=password)
            do_accept_invitation(user, invitation)
    except IntegrityError as error:
        raise ValidationError({"username": "This name is taken."}) from error
    return user


def do_make_service_account(user: User, team: Team, name: str, role: TeamRole) -> User:
    """Create an account for a program: it cannot sign in and works through tokens that the team's owners create.

    Raises ValidationError.
    """
    _check_owner(user, team)
    if role == TeamRole.OWNER:
        raise ValidationError({"role": "A service account cannot own a team."})
    if team.members.filter(is_service_account=True).count() >= MAX_SERVICE_ACCOUNTS:
        raise ValidationError(f"A team has at most {MAX_SERVICE_ACCOUNTS} service accounts.")
    username = f"{team.slug}.{slugify(name)}"[:150]
    if not slugify(name) or User.objects.filter(username=username).exists():
        raise ValidationError({"name": "Choose another name."})
    with transaction.atomic():
        account = User.objects.create_user(username, is_service_account=True)
        Membership.objects.create(team=team, user=account, role=role)
        log_action(AuditAction.SERVICE_ADDED, user, team, username, role=role.value)
    return account


def do_end_service_account(user: User, team: Team, account: User) -> None:
    """Disable a service account and revoke its tokens. Its past actions keep its name. Raises ValidationError."""
    _check_owner(user, team)
    if not account.is_service_account or account.role_in(team) is None:
        raise ValidationError("This is not a service account of this team.")
    with transaction.atomic():
        User.objects.filter(pk=account.pk).update(is_active=False)
        Membership.objects.filter(user=account).delete()
        ApiToken.objects.filter(user=account, revoked_at=None).update(revoked_at=timezone.now())
        log_action(AuditAction.SERVICE_ENDED, user, team, account.username)
        recheck_access(account.pk)


def do_set_privacy(user: User, run: Run, is_private: bool) -> None:
    """Hide a run from the team or show it, as its starter or as an owner. Raises ValidationError.

    Does nothing where the run is in that state already.
    """
    if run.is_private == is_private:
        return
    if run.created_by_id != user.pk and user.role_in(run.team) != TeamRole.OWNER:
        raise ValidationError("Only whoever started the run, and owners of the team, change its visibility.")
    with transaction.atomic():
        Run.objects.filter(pk=run.pk).update(is_private=is_private)
        log_action(AuditAction.RUN_PRIVACY, user, run, private=is_private)
        # Members who may no longer see the run have its page open right now, perhaps.
        for member in run.team.members.all():
            recheck_access(member.pk)


def _check_owner(user: User, team: Team) -> None:
    if user.role_in(team) != TeamRole.OWNER:
        raise ValidationError("Only owners of the team can do this.")


def _locked_membership(team: Team, member: User) -> Membership:
    """Return the membership, with the team locked so that two owners cannot demote each other at once."""
    Team.objects.select_for_update().get(pk=team.pk)
    membership = Membership.objects.filter(team=team, user=member).first()
    if membership is None:
        raise ValidationError("This person is not in the team.")
    return membership


def _check_not_last_owner(membership: Membership) -> None:
    if membership.role != TeamRole.OWNER:
        return
    owners = Membership.objects.filter(team=membership.team, role=TeamRole.OWNER, user__is_active=True)
    if not owners.exclude(pk=membership.pk).exists():
        raise ValidationError("A team needs an owner. Make someone else owner first.")

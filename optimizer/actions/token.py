"""Create and revoke API tokens."""

from __future__ import annotations

import datetime as dt

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from optimizer.actions.audit import log_action
from optimizer.models import ApiToken, AuditAction, Team, TeamRole, TokenScope, User

MAX_TOKENS = 50


def check_make_token(user: User, name: str, scopes: list[str], expires_at: dt.datetime | None) -> list[TokenScope]:
    """Validate the fields of a new token and return its scopes. Raises ValidationError."""
    unknown = sorted(set(scopes) - set(TokenScope.values))
    if unknown:
        raise ValidationError({"scopes": f"Unknown scope: {', '.join(unknown)}."})
    if not scopes:
        raise ValidationError({"scopes": "Choose at least one scope."})
    if not name.strip() or len(name) > 100:
        raise ValidationError({"name": "Enter a name of at most 100 characters."})
    if expires_at is not None and expires_at <= timezone.now():
        raise ValidationError({"expires_at": "Choose a date in the future."})
    if ApiToken.objects.usable().filter(user=user).count() >= MAX_TOKENS:
        raise ValidationError(f"At most {MAX_TOKENS} tokens. Revoke some first.")
    return [TokenScope(scope) for scope in scopes]


def do_make_token(
    user: User, name: str, scopes: list[str], expires_at: dt.datetime | None = None, *, by: User | None = None
) -> tuple[ApiToken, str]:
    """Create a token. Return its row and the secret, which cannot be read again. Raises ValidationError.

    The token belongs to `user`. `by` is the owner of its team, for a service account.
    """
    checked = check_make_token(user, name, scopes, expires_at)
    _check_may_change(by or user, user)
    with transaction.atomic():
        made = ApiToken.make(user, name.strip(), checked, expires_at)
        _tell(AuditAction.TOKEN_MADE, by or user, made[0])
    return made


def do_revoke_token(user: User, token: ApiToken) -> None:
    """Revoke one's own token, a service account's as an owner of its team, or anybody's as an administrator.

    Raises ValidationError.
    """
    _check_may_change(user, token.user)
    with transaction.atomic():
        token.revoke()
        _tell(AuditAction.TOKEN_REVOKED, user, token)


def _check_may_change(user: User, holder: User) -> None:
    if user.pk == holder.pk or user.is_superuser:
        return
    owned = holder.memberships.filter(team__memberships__user=user, team__memberships__role=TeamRole.OWNER)
    if not (holder.is_service_account and owned.exists()):
        raise ValidationError("This is not your token.")


def _tell(action: AuditAction, user: User, token: ApiToken) -> None:
    """Write to the audit log of every team that the token can reach."""
    teams: list[Team | None] = [*token.user.teams.all()]
    # An account without a team, such as a new administrator's, still leaves an entry.
    for team in teams or [None]:
        log_action(action, user, team, f"{token} of {token.user.get_username()}", scopes=token.scopes)

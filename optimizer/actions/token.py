"""Making and ending API tokens."""

from __future__ import annotations

import datetime as dt

from django.core.exceptions import ValidationError
from django.utils import timezone

from optimizer.models import ApiToken, TokenScope, User

MAX_TOKENS = 50


def check_make_token(user: User, name: str, scopes: list[str], expires_at: dt.datetime | None) -> list[TokenScope]:
    """The scopes, found sound. Raises ValidationError."""
    unknown = sorted(set(scopes) - set(TokenScope.values))
    if unknown:
        raise ValidationError({"scopes": f"There is no scope {', '.join(unknown)}."})
    if not scopes:
        raise ValidationError({"scopes": "A token without a scope can do nothing: name one."})
    if not name.strip() or len(name) > 100:
        raise ValidationError({"name": "Name the token, in at most 100 characters."})
    if expires_at is not None and expires_at <= timezone.now():
        raise ValidationError({"expires_at": "That is in the past."})
    if ApiToken.objects.usable().filter(user=user).count() >= MAX_TOKENS:
        raise ValidationError(f"Nobody needs more than {MAX_TOKENS} tokens: revoke some first.")
    return [TokenScope(scope) for scope in scopes]


def do_make_token(
    user: User, name: str, scopes: list[str], expires_at: dt.datetime | None = None
) -> tuple[ApiToken, str]:
    """A new token of the person's own, and its secret, which cannot be read again. Raises ValidationError."""
    return ApiToken.make(user, name.strip(), check_make_token(user, name, scopes, expires_at), expires_at)


def do_revoke_token(user: User, token: ApiToken) -> None:
    """End a token: one's own, or as an administrator anybody's. Raises ValidationError."""
    if token.user_id != user.pk and not user.is_superuser:
        raise ValidationError("That is not your token.")
    token.revoke()

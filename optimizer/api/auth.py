"""Who calls the API: a token with scopes, or the session of somebody who is signed in (with CSRF protection)."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja.errors import HttpError
from ninja.security import HttpBearer, SessionAuth

from optimizer.models import ApiToken, TokenScope, User


class TokenAuth(HttpBearer):
    """`Authorization: Bearer ks_…` with a token that names the scope."""

    def __init__(self, scope: TokenScope) -> None:
        super().__init__()
        self.scope = scope

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken | None:
        """The token, and its owner as the request's user. 403 for one that lacks the scope."""
        found = ApiToken.find(token)
        if found is None:
            return None
        if not found.allows(self.scope):
            raise HttpError(403, f"this token has no scope “{self.scope.value}”")
        request.user = found.user
        return found


def needs(scope: TokenScope) -> list[Any]:
    """What to pass as `auth=` of a router or route."""
    return [TokenAuth(scope), SessionAuth()]


def caller(request: HttpRequest) -> User:
    """The person behind an authenticated request."""
    if not isinstance(request.user, User):
        raise HttpError(401, "sign in, or send a token")
    return request.user

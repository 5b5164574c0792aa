"""Authenticate API calls by a token with scopes, or by the session of a signed-in person (with CSRF protection)."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja.errors import HttpError
from ninja.security import HttpBearer, SessionAuth

from optimizer.api.throttle import count_request
from optimizer.models import ApiToken, TokenScope, User


class TokenAuth(HttpBearer):
    """Accept `Authorization: Bearer ks_…` with a token that has the scope."""

    def __init__(self, scope: TokenScope) -> None:
        super().__init__()
        self.scope = scope

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken | None:
        """Return the token and set its owner as the request's user.

        Answers 403 for a token without the scope, and 429 for one that asks too often.
        """
        found = ApiToken.find(token)
        if found is None:
            return None
        count_request(found.pk)
        if not found.allows(self.scope):
            raise HttpError(403, f"this token has no scope “{self.scope.value}”")
        # All later checks then treat the token's owner like a signed-in person.
        request.user = found.user
        return found


def needs(scope: TokenScope) -> list[Any]:
    """Return the value for `auth=` of a router or route."""
    # The token is tried first, so its scope limits a request that also carries a session cookie.
    return [TokenAuth(scope), SessionAuth()]


def caller(request: HttpRequest) -> User:
    """Return the person behind an authenticated request."""
    if not isinstance(request.user, User):
        raise HttpError(401, "sign in, or send a token")
    return request.user

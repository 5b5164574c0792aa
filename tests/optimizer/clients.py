"""Provide browsers and scripts that somebody is signed in to, and read what they are answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from asgiref.sync import async_to_sync
from django.test import Client

from optimizer.actions.token import do_make_token
from optimizer.models import TokenScope, User

Call = Callable[..., Any]


def signed_in(user: User) -> Client:
    """Return a browser with that person's session."""
    client = Client()
    client.force_login(user)
    return client


def caller_of(user: User, *scopes: TokenScope) -> Call:
    """Return a function that calls the API with a token of that person: method, path and body in, the answer out."""
    secret = do_make_token(user, "test", [scope.value for scope in scopes or tuple(TokenScope)])[1]
    client = Client(headers={"authorization": f"Bearer {secret}"})

    def call(method: str, path: str, body: Any = None, **headers: str) -> Any:
        extra: dict[str, Any] = (
            {"data": json.dumps(body), "content_type": "application/json"} if body is not None else {}
        )
        return client.generic(method, f"/api/v1{path}", **extra, headers=headers)

    return call


def flowing(text: str) -> str:
    """Return the page with one space for each run of whitespace, as a browser shows it."""
    return " ".join(text.split())


def streamed(answer: Any) -> str:
    """Return the text of an answer that comes piece by piece."""

    async def whole() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    return async_to_sync(whole)().decode()

"""Serve MCP over streamable HTTP beside Django, for requests with an API token.

Requests do not pass through Django's middleware, so what it does for the API is done here with Django's own code: the
host, the redirect to https. The token's rate is that of the API, which tools count on again.

Sessions are not kept: every request says who asks, and any web process may answer it. The SDK's manager needs a task
group that outlives requests, and Daphne has no start-up event, so it is opened with the first request of each loop.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from channels.db import database_sync_to_async
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse
from django.middleware.security import SecurityMiddleware
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from optimizer.api.throttle import TooManyRequestsError, count_request
from optimizer.mcp.server import make_server
from optimizer.models import ApiToken, TokenScope
from optimizer.text.bounded_json import JsonLimitError, check_nesting

PATH = "/mcp"
# A message holds a kernel or two. What it takes to decode the worst one of this size holds the event loop for less than
# a tenth of a second.
MOST_BYTES = 1 << 20
MOST_CONTAINERS = 10_000
Application = Callable[[Any, Any, Any], Awaitable[None]]


class McpApplication:
    """Answer requests at `/mcp`, and pass all others on to Django."""

    def __init__(self, others: Application) -> None:
        self._others = others
        self._applications: WeakKeyDictionary[asyncio.AbstractEventLoop, Application] = WeakKeyDictionary()
        self._ready: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Event] = WeakKeyDictionary()
        # Held, because a loop keeps only a weak reference to its tasks.
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Route by path. Requests that the API would refuse never reach the MCP server."""
        if scope["type"] != "http" or scope["path"].rstrip("/") != PATH:
            return await self._others(scope, receive, send)
        refusal = _refused_by_site(scope) or await database_sync_to_async(_refused_token)(scope)
        if refusal is not None:
            return await refusal.answer(send)
        body = await _whole_body(receive)
        if body is None:
            return await Refusal(413, f"A message holds at most {MOST_BYTES >> 20} MiB.").answer(send)
        if (fault := await asyncio.to_thread(_fault, body)) is not None:
            return await Refusal(400, f"This message is refused: {fault}.").answer(send)
        application = await self._application()
        return await application({**scope, "path": PATH}, _replayed(body, receive), send)

    async def _application(self) -> Application:
        """Return this loop's MCP application. Of requests that come at once, the first one makes it."""
        loop = asyncio.get_running_loop()
        if loop not in self._applications:
            server = make_server()
            # The host was checked against ALLOWED_HOSTS already.
            security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
            self._applications[loop] = server.streamable_http_app(
                streamable_http_path=PATH, json_response=True, stateless_http=True, transport_security=security
            )
            ready = asyncio.Event()
            task = loop.create_task(_keep_open(server.session_manager, ready))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._ready[loop] = ready
        await self._ready[loop].wait()
        return self._applications[loop]


async def _keep_open(manager: StreamableHTTPSessionManager, ready: asyncio.Event) -> None:
    async with manager.run():
        ready.set()
        await asyncio.Event().wait()


@dataclass(frozen=True)
class Refusal:
    """Hold an answer that is no one of the MCP server, in the API's shape."""

    status: int
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)

    async def answer(self, send: Any) -> None:
        """Send it."""
        body = json.dumps({"detail": self.detail}).encode()
        given = {"content-type": "application/json", "content-length": str(len(body)),
                 "x-content-type-options": "nosniff", **self.headers}  # fmt: skip
        headers = [(name.encode(), value.encode()) for name, value in given.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _refused_by_site(scope: Any) -> Refusal | None:
    """Return the refusal of what Django's middleware would refuse by headers alone."""
    request = ASGIRequest({**scope, "method": scope.get("method", "GET")}, io.BytesIO())
    try:
        request.get_host()
    except DisallowedHost:
        return Refusal(400, "This site has another name: see ALLOWED_HOSTS.")
    # A token that is sent in the clear must not work, or nobody would notice.
    elsewhere = SecurityMiddleware(lambda _: HttpResponse()).process_request(request)
    if elsewhere is not None:
        return Refusal(elsewhere.status_code, "This site is reached by https.", {"location": elsewhere["Location"]})
    return None


def _refused_token(scope: Any) -> Refusal | None:
    """Return the refusal of a request without a usable token that may read, or of one that asks too often.

    Each tool checks what else it needs.
    """
    given = next((value for name, value in scope["headers"] if name.lower() == b"authorization"), b"")
    kind, _, secret = given.decode("latin-1").partition(" ")
    found = ApiToken.find(secret.strip()) if kind.lower() == "bearer" and secret else None
    if found is None or not found.allows(TokenScope.READ):
        words = "Send an API token with the scope “read”: Authorization: Bearer ks_…"
        return Refusal(401, words, {"www-authenticate": 'Bearer realm="kernel-scientist"'})
    try:
        count_request(found.pk)
    except TooManyRequestsError as error:
        return Refusal(429, str(error), {"retry-after": str(error.retry_after_s)})
    return None


async def _whole_body(receive: Any) -> bytes | None:
    """Return the body, or None if it is larger than a message may be.

    The server in front stores no body beyond the limit of all requests, so a declared length needs no check here.
    """
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return bytes(body)
        body += message.get("body", b"")
        if len(body) > MOST_BYTES:
            return None
        if not message.get("more_body"):
            return bytes(body)


def _fault(body: bytes) -> str | None:
    """Return what is too much in a message. The SDK decodes it in the event loop, which waits meanwhile."""
    try:
        check_nesting(body.decode(errors="replace"), MOST_CONTAINERS)
    except JsonLimitError as error:
        return str(error)
    return None


def _replayed(body: bytes, receive: Any) -> Callable[[], Awaitable[Any]]:
    """Return a `receive` that gives the body first, and then whatever comes, such as the end of the connection."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Any:
        return waiting.pop() if waiting else await receive()

    return next_message

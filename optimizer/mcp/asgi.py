"""Serve MCP over streamable HTTP beside Django, for requests with an API token.

Sessions are not kept: every request says who asks, and any web process may answer it. The SDK's manager needs a task
group that outlives requests, and Daphne has no start-up event, so it is opened with the first request of each loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

from channels.db import database_sync_to_async
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from optimizer.mcp.server import make_server
from optimizer.models import ApiToken, TokenScope

PATH = "/mcp"
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
        """Route by path. Requests without a usable token never reach the MCP server."""
        if scope["type"] != "http" or scope["path"].rstrip("/") != PATH:
            return await self._others(scope, receive, send)
        if not await _has_token(scope):
            return await _refuse(send)
        application = await self._application()
        return await application({**scope, "path": PATH}, receive, send)

    async def _application(self) -> Application:
        """Return this loop's MCP application. Of requests that come at once, the first one makes it."""
        loop = asyncio.get_running_loop()
        if loop not in self._applications:
            server = make_server()
            # The Host header is not checked: a page that was rebound to this address has no token to send.
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


async def _has_token(scope: Any) -> bool:
    """Return whether the request carries a usable token that may read. Each tool checks what else it needs."""
    given = next((value for name, value in scope["headers"] if name.lower() == b"authorization"), b"")
    kind, _, secret = given.decode("latin-1").partition(" ")
    if kind.lower() != "bearer" or not secret:
        return False
    found = await database_sync_to_async(ApiToken.find)(secret.strip())
    return found is not None and found.allows(TokenScope.READ)


async def _refuse(send: Any) -> None:
    words = "Send an API token with the scope “read”: Authorization: Bearer ks_…"
    body = json.dumps({"detail": words}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()),
               (b"www-authenticate", b'Bearer realm="kernel-scientist"')]  # fmt: skip
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body})

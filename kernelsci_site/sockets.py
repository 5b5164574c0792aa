"""Count the websockets that this process holds open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

Application = Callable[[Any, Any, Any], Awaitable[None]]
_open = 0


def open_sockets() -> int:
    """Return how many websockets are open in this process."""
    return _open


def counted(application: Application) -> Application:
    """Wrap the application so that its open connections are counted."""

    async def count(scope: Any, receive: Any, send: Any) -> None:
        global _open
        _open += 1
        try:
            await application(scope, receive, send)
        finally:
            _open -= 1

    return count

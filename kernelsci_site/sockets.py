"""How many websockets this process holds open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

Application = Callable[[Any, Any, Any], Awaitable[None]]
_open = 0


def open_sockets() -> int:
    """Websockets open in this process right now."""
    return _open


def counted(application: Application) -> Application:
    """The same application, counting for how many connections it runs."""

    async def count(scope: Any, receive: Any, send: Any) -> None:
        global _open
        _open += 1
        try:
            await application(scope, receive, send)
        finally:
            _open -= 1

    return count

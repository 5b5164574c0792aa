"""Count the websockets that this process holds open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import Gauge

Application = Callable[[Any, Any, Any], Awaitable[None]]
OPEN = Gauge("kernelsci_sockets_open", "Websockets open in the answering process.", registry=None)


def counted(application: Application) -> Application:
    """Wrap the application so that its open connections are counted."""

    async def count(scope: Any, receive: Any, send: Any) -> None:
        with OPEN.track_inprogress():
            await application(scope, receive, send)

    return count

"""Define what Daphne serves: pages over HTTP, MCP for coding agents, and live events over websockets."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kernelsci_site.settings")
# Daphne answers from many threads: persistent connections would leak, a pool does not. Workers fork: none there.
os.environ.setdefault("KERNELSCI_DATABASE_POOL", "1")

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.core.asgi import get_asgi_application

http_application = get_asgi_application()  # loads the apps; what follows needs them

from kernelsci_site.garbage import freeze_loaded_objects  # noqa: E402
from kernelsci_site.origins import for_own_pages  # noqa: E402
from kernelsci_site.proxies import behind_proxies  # noqa: E402
from kernelsci_site.request_bodies import bound_bodies  # noqa: E402
from kernelsci_site.sockets import counted  # noqa: E402
from optimizer.live.routing import websocket_urlpatterns  # noqa: E402
from optimizer.mcp.asgi import McpApplication  # noqa: E402

sockets = URLRouter(websocket_urlpatterns)  # type: ignore[arg-type]  # the stubs know only their own patterns
signed_in: Any = AuthMiddlewareStack(sockets)
# Browsers send cookies with websockets to any site, so the origin is checked before the session is read.
by_protocol = ProtocolTypeRouter(
    {
        "http": McpApplication(http_application),
        "websocket": counted(for_own_pages(signed_in)),
    }
)
application = behind_proxies(by_protocol, settings.PROXIES)
bound_bodies()
freeze_loaded_objects()

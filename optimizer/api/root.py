"""The API itself: one line a router."""

from __future__ import annotations

from ninja import NinjaAPI

from optimizer.api import inbox

api = NinjaAPI(title="Kernel Scientist", version="1", urls_namespace="api", docs_url=None)
api.add_router("/inbox", inbox.router)

"""Map addresses to sockets."""

from __future__ import annotations

from django.urls import URLPattern, path

from optimizer.live.consumers import RunConsumer
from optimizer.live.person import PersonConsumer

websocket_urlpatterns: list[URLPattern] = [
    path("ws/me/", PersonConsumer.as_asgi()),  # type: ignore[arg-type]  # channels calls it, not Django
    path("ws/runs/<int:run_id>/", RunConsumer.as_asgi()),  # type: ignore[arg-type]  # channels calls it, not Django
]

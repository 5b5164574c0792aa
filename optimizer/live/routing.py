"""Addresses of the sockets."""

from __future__ import annotations

from django.urls import URLPattern, path

from optimizer.live.consumers import RunConsumer

websocket_urlpatterns: list[URLPattern] = [
    path("ws/runs/<int:run_id>/", RunConsumer.as_asgi()),  # type: ignore[arg-type]  # channels calls it, not Django
]

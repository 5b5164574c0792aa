"""Check the settings for mistakes that would show only much later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register


@register()
def channel_layer_reaches_other_processes(
    app_configs: Sequence[AppConfig] | None, **_kwargs: Any
) -> list[CheckMessage]:
    """Reject the in-memory channel layer, whose messages stay in one process."""
    backends = [layer.get("BACKEND", "") for layer in settings.CHANNEL_LAYERS.values()]
    if any("InMemory" in backend for backend in backends):
        return [Error("The in-memory channel layer loses what workers announce.", id="kernelsci.E001")]
    return []


@register()
def database_is_postgresql(app_configs: Sequence[AppConfig] | None, **_kwargs: Any) -> list[CheckMessage]:
    """Require PostgreSQL, since the queue depends on row locks, SKIP LOCKED and conditional updates."""
    if settings.DATABASES["default"]["ENGINE"] != "django.db.backends.postgresql":
        return [Error("The database must be PostgreSQL.", id="kernelsci.E002")]
    return []

"""Make text and JSON from outside fit for PostgreSQL."""

from __future__ import annotations

import math
from typing import Any

from runners.wire import storable_text

__all__ = ["storable", "storable_text"]


def storable(value: Any) -> Any:
    """Return the JSON value with storable text in keys and strings; NaN and infinity become null."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {storable_text(str(key)): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value

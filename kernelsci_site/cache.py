"""Share a cache between all processes: counts of failed sign-ins, and who looks at what.

While Redis does not answer, each process uses its own memory instead: passwords stay hard to guess, and no page
fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache
from redis.exceptions import RedisError

NEAR_ENTRIES = 10_000

logger = logging.getLogger(__name__)
T = TypeVar("T")


class ForgivingRedisCache(RedisCache):
    """Extend Django's cache with a fallback in this process's memory. Neither is ever copied to the other."""

    def __init__(self, server: Any, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        # Bounded, so that an attacker who tries many names cannot fill the memory.
        self._near = LocMemCache(f"instead of {server}", {**params, "OPTIONS": {"MAX_ENTRIES": NEAR_ENTRIES}})

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        """Return the stored value, or the default."""
        return _either(super().get, self._near.get, key, default, version)

    def set(self, key: Any, value: Any, *args: Any, **options: Any) -> None:
        """Store the value."""
        _either(super().set, self._near.set, key, value, *args, **options)

    def add(self, key: Any, value: Any, *args: Any, **options: Any) -> bool:
        """Return True when the value was stored now, False when one existed."""
        return _either(super().add, self._near.add, key, value, *args, **options)

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """Return the new count. Raises ValueError where there is none in Redis; in memory it starts at 0."""
        return int(_either(super().incr, self._near_incr, key, delta, version))

    def delete(self, key: Any, version: int | None = None) -> bool:
        """Return True when there was a value."""
        return bool(_either(super().delete, self._near.delete, key, version))

    def get_many(self, keys: Any, version: int | None = None) -> dict[Any, Any]:
        """Return the stored values of these keys."""
        keys = list(keys)
        return _either(super().get_many, self._near.get_many, keys, version)

    def set_many(self, data: Any, *args: Any, **options: Any) -> list[Any]:
        """Store the values and return the keys that could not be stored."""
        return _either(super().set_many, self._near.set_many, data, *args, **options)

    def _near_incr(self, key: Any, delta: int, version: int | None) -> int:
        """Increment in memory, creating the count, as Redis may have failed between `add` and this call."""
        self._near.add(key, 0, version=version)
        return self._near.incr(key, delta, version)


def _either(shared: Callable[..., T], near: Callable[..., T], *args: Any, **options: Any) -> T:
    try:
        return shared(*args, **options)
    except RedisError as error:
        logger.warning("the cache is unavailable, this process uses its own memory: %r", error)
        return near(*args, **options)

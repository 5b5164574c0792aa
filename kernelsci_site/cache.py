"""The cache that all processes share: counts of failed sign-ins, who looks at what. Losing Redis loses these and
nothing else, so a cache that does not answer is an empty one and never an error."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from django.core.cache.backends.redis import RedisCache
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)
T = TypeVar("T")


class ForgivingRedisCache(RedisCache):
    """Django's own, silent when Redis is away. A count that cannot be raised is 1."""

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        """What is stored, or the default."""
        return _or(default, lambda: super(ForgivingRedisCache, self).get(key, default, version))

    def set(self, key: Any, value: Any, *args: Any, **options: Any) -> None:
        """Store it, if that can be done."""
        _or(None, lambda: super(ForgivingRedisCache, self).set(key, value, *args, **options))

    def add(self, key: Any, value: Any, *args: Any, **options: Any) -> bool:
        """True when it was stored now; False when it was there or nothing could be stored."""
        return bool(_or(False, lambda: super(ForgivingRedisCache, self).add(key, value, *args, **options)))

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """The new count."""
        return int(_or(1, lambda: super(ForgivingRedisCache, self).incr(key, delta, version)))

    def delete(self, key: Any, version: int | None = None) -> bool:
        """True when there was something."""
        return bool(_or(False, lambda: super(ForgivingRedisCache, self).delete(key, version)))

    def get_many(self, keys: Any, version: int | None = None) -> dict[Any, Any]:
        """What is stored of these."""
        found: dict[Any, Any] = _or({}, lambda: super(ForgivingRedisCache, self).get_many(keys, version))
        return found

    def set_many(self, data: Any, *args: Any, **options: Any) -> list[Any]:
        """Store them; the keys that could not be."""
        left: list[Any] = _or(list(data), lambda: super(ForgivingRedisCache, self).set_many(data, *args, **options))
        return left


def _or(otherwise: T, ask: Callable[[], T]) -> T:
    try:
        return ask()
    except RedisError as error:
        logger.warning("the cache does not answer: %r", error)
        return otherwise

"""Track who looks at which page: one sorted set in Redis per place, one member per open page, scored by its expiry.

A process that dies leaves its people visible for at most `KEPT_S`. Without Redis nobody is visible, and nothing
fails.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from django.conf import settings
from redis import asyncio as redis
from redis.exceptions import RedisError

KEPT_S = 45.0
SHOWN = 20
_SEPARATOR = "\x1f"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """Identify a run's page or, with `kernel` (its number), a kernel's page."""

    run_id: int
    kernel: int | None = None

    @property
    def name(self) -> str:
        """Return the name in Redis and of the channel group."""
        return f"here.{self.run_id}" if self.kernel is None else f"here.{self.run_id}.{self.kernel}"


class Presence:
    """Track one open page of one person. Instances must not be shared between event loops."""

    def __init__(self, place: Place, username: str, page: str) -> None:
        self.place = place
        self._member = f"{username}{_SEPARATOR}{page}"
        self._redis = redis.Redis.from_url(settings.REDIS_SERVER_URL, socket_timeout=2, socket_connect_timeout=2)
        self._key = f"kernelsci:{place.name}"

    async def touch(self) -> None:
        """Extend the presence."""
        now = time.time()
        try:
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.zadd(self._key, {self._member: now + KEPT_S})
                # Every page that is open removes the expired ones, so no clean-up task is needed.
                pipe.zremrangebyscore(self._key, 0, now)
                # The set disappears by itself when the last page is closed by a crash.
                pipe.expire(self._key, int(2 * KEPT_S))
                await pipe.execute()
        except RedisError:
            logger.debug("presence could not be updated", exc_info=True)

    async def leave(self) -> None:
        """Remove the presence and close the connection."""
        try:
            await self._redis.zrem(self._key, self._member)
        except RedisError:
            logger.debug("presence could not be updated", exc_info=True)
        await self._redis.aclose()

    async def people(self) -> list[str]:
        """Return the user names of the people present, without repetition, in alphabetical order."""
        try:
            members = await self._redis.zrangebyscore(self._key, time.time(), "+inf")
        except RedisError:
            return []
        return sorted({member.decode().partition(_SEPARATOR)[0] for member in members})[:SHOWN]

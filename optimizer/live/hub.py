"""Keep one listener per run in each web process, however many sockets look at the run.

Receiving a message costs a process at least a tenth of a millisecond. Three hundred sockets that each receive twenty
per second would keep more than one core busy. The process therefore receives once, reads once, and notifies its
sockets, which send everything new in one message: at once, and then at most every `GATHER_S`, so that a burst is sent
together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from channels.layers import get_channel_layer

from optimizer.events.sockets import group_of
from optimizer.live.tail import events_after

GATHER_S = 0.1
LISTEN_AGAIN_S = 1.0
REJOIN_S = 3600.0

logger = logging.getLogger(__name__)


class Listener(Protocol):
    """Describe a socket that is notified."""

    async def run_event(self, message: dict[str, Any]) -> None:
        """Handle that the run has events up to `seq`."""

    async def run_passing(self, message: dict[str, Any]) -> None:
        """Handle transient news."""


class Hub:
    """Receive the messages of one run and notify its listeners. A hub lives while it has any."""

    def __init__(self, run_id: int) -> None:
        self.run_id = run_id
        self.listeners: set[Listener] = set()
        self._newest = self._told = 0
        self._flush: asyncio.Task[None] | None = None
        self._joined = asyncio.Event()
        self._task = asyncio.create_task(self._listen())

    async def add(self, listener: Listener) -> None:
        """Add a listener. After the return it is notified of everything."""
        self.listeners.add(listener)
        await self._joined.wait()

    def remove(self, listener: Listener) -> bool:
        """Remove a listener. Return True when it was the last one and the hub has ended."""
        self.listeners.discard(listener)
        if not self.listeners:
            self._task.cancel()
        return not self.listeners

    async def _listen(self) -> None:
        """Receive until cancelled, and start again after an error of the channel layer.

        Sockets find what was missed meanwhile at their next heartbeat.
        """
        while True:
            try:
                await self._listen_once()
            except Exception:
                logger.warning("the listener of run %s failed and starts again", self.run_id, exc_info=True)
                self._joined.set()
                await asyncio.sleep(LISTEN_AGAIN_S)

    async def _listen_once(self) -> None:
        layer: Any = get_channel_layer()
        channel = await layer.new_channel()
        group = group_of(self.run_id)
        try:
            while True:
                await layer.group_add(group, channel)
                self._joined.set()
                with contextlib.suppress(TimeoutError):  # memberships may expire where nothing happens for long
                    async with asyncio.timeout(REJOIN_S):
                        while True:
                            await self._hear(await layer.receive(channel))
        finally:
            with contextlib.suppress(Exception):
                await layer.group_discard(group, channel)

    async def _hear(self, message: dict[str, Any]) -> None:
        if message["type"] == "run.passing":
            await self._tell("run_passing", message)
            return
        self._newest = max(self._newest, message["seq"])
        if self._flush is None or self._flush.done():
            self._flush = asyncio.create_task(self._notify())

    async def _notify(self) -> None:
        """Notify the listeners of everything that arrived meanwhile, until nothing new is left."""
        while self._told < self._newest:
            # After a start nothing was told yet: then only the newest event is announced, as the sockets have
            # caught up themselves.
            before, self._told = self._told or self._newest - 1, self._newest
            with contextlib.suppress(Exception):  # each socket asks for what it lacks, and has its own patience
                await events_after(self.run_id, before, self._told)
            await self._tell("run_event", {"type": "run.event", "run": self.run_id, "seq": self._told})
            # Events that arrive during this pause are announced together.
            await asyncio.sleep(GATHER_S)

    async def _tell(self, how: str, message: dict[str, Any]) -> None:
        """Notify all listeners concurrently, as one may be busy catching up; one failure does not affect the others."""
        # Copy the set: a listener may leave while the others are being notified.
        calls = [getattr(listener, how)(message) for listener in list(self.listeners)]
        await asyncio.gather(*calls, return_exceptions=True)


# Tasks and channels belong to one event loop; tests, for example, use a new loop per test.
_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Hub]] = WeakKeyDictionary()


async def join(run_id: int, listener: Listener) -> None:
    """Subscribe the listener to a run."""
    hubs = _hubs.setdefault(asyncio.get_running_loop(), {})
    if run_id not in hubs:
        hubs[run_id] = Hub(run_id)
    await hubs[run_id].add(listener)


def leave(run_id: int, listener: Listener) -> None:
    """Remove the subscription of the listener from a run."""
    hubs = _hubs.get(asyncio.get_running_loop(), {})
    if run_id in hubs and hubs[run_id].remove(listener):
        del hubs[run_id]

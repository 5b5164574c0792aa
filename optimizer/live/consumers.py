"""Serve the socket of a run's page: everything after `?after=`, then new events, in order and without a gap.

Messages to the browser, as JSON:
  `{"kind": "events", "events": [{seq, type, payload}, …]}`: events in order, each number exactly once. `payload` has
    only what pages use (`optimizer.live.tail.USED_BY_PAGES`); the API returns whole events.
  `{"kind": "heartbeat", "seq": n}`: once everything up to n was sent, and then every `HEARTBEAT_S`.
  `{"kind": "passing", "what": "token" | "stage" | "log", …}`: transient news that are not stored.

Close codes: 4401 not signed in, 4404 no such run for this person (any more), 4400 a malformed address.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any
from urllib.parse import parse_qs

from channels.generic.websocket import AsyncJsonWebsocketConsumer

from optimizer.events.sockets import group_of_person
from optimizer.live import hub
from optimizer.live.rights import MALFORMED, person_of, refusal
from optimizer.live.tail import PAGE, as_message, events_after
from optimizer.text.whole_numbers import parse_whole_number

HEARTBEAT_S = 15.0
RECHECK_S = 30.0
REJOIN_S = 3600.0

logger = logging.getLogger(__name__)


class RunConsumer(AsyncJsonWebsocketConsumer):
    """Serve one browser that looks at one run.

    The event table is the truth; a group message only says when to read it.
    """

    async def connect(self) -> None:
        """Accept whoever may view the run, and send what they have missed."""
        await self.accept()  # first, since a browser is told a close code only over an open socket
        self.run_id = int(self.scope["url_route"]["kwargs"]["run_id"])
        self._sending = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._groups: list[str] = []
        after = _after(self.scope["query_string"])
        refused = MALFORMED if after is None else await refusal(self.scope, self.run_id)
        if after is None or refused is not None:
            await self.close(refused)
            return
        self.seq, self.user = after, person_of(self.scope)
        # Join before reading the table: an event between both is then announced and read, never missed.
        await self._join()
        await self._catch_up()
        await self._beat()
        self._keeper = asyncio.create_task(self._keep())

    async def disconnect(self, code: int) -> None:
        """Leave the hub and the groups without raising."""
        if (keeper := getattr(self, "_keeper", None)) is not None:
            keeper.cancel()
        with contextlib.suppress(Exception):
            hub.leave(self.run_id, self)
            for group in self._groups:
                await self.channel_layer.group_discard(group, self.channel_name)

    async def receive_json(self, content: Any, **_kwargs: Any) -> None:
        """Ignore what browsers send; all their actions go through the pages."""

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **_kwargs: Any) -> None:
        """Ignore every message, well-formed or not."""

    async def run_event(self, message: dict[str, Any]) -> None:
        """Send the events up to `seq` that the browser does not have."""
        # Announcements may arrive late or twice; the number decides whether anything is new.
        if message["seq"] > self.seq:
            await self._catch_up(message["seq"])

    async def run_passing(self, message: dict[str, Any]) -> None:
        """Send transient news."""
        await self.send_json({"kind": "passing", "what": message["kind"], **message["content"]})

    async def person_recheck(self, message: dict[str, Any]) -> None:
        """Check access again after a change of the person's memberships or of this session."""
        if (refused := await refusal(self.scope, self.run_id)) is not None:
            await self.close(refused)

    async def person_news(self, message: dict[str, Any]) -> None:
        """Ignore the number of unread notifications, which the person's own socket sends."""

    async def _join(self) -> None:
        """Subscribe to the run through this process's hub, and to changes of the person's rights."""
        await hub.join(self.run_id, self)
        self._groups = [group_of_person(self.user.pk)]
        for group in self._groups:
            await self.channel_layer.group_add(group, self.channel_name)

    async def _catch_up(self, up_to: int | None = None) -> None:
        """Send everything after the last number sent, one call at a time so that numbers stay in order."""
        async with self._sending:
            while events := await events_after(self.run_id, self.seq, up_to):
                # Advance before sending: if the send fails, the socket is closed and the browser reconnects with
                # its own number.
                self.seq = events[-1]["seq"]
                await self.send(text_data=as_message(self.run_id, events))
                if len(events) < PAGE and (up_to is None or self.seq >= up_to):
                    return

    async def _beat(self) -> None:
        await self.send_json({"kind": "heartbeat", "seq": self.seq})

    async def _keep(self) -> None:
        """Send heartbeats, look for events whose announcement was lost, and check access again."""
        # Access, membership of the group and missed events are checked at intervals of their own.
        checked = joined = time.monotonic()
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            try:
                now = time.monotonic()
                if now - checked >= RECHECK_S:
                    checked = now
                    if (refused := await refusal(self.scope, self.run_id)) is not None:
                        await self.close(refused)
                        return
                # Group memberships in Redis expire, and a restart of Redis loses them.
                if now - joined >= REJOIN_S:
                    joined = now
                    await self._join()
                await self._catch_up()
                await self._beat()
            except Exception:
                logger.warning("a socket of run %s missed a heartbeat", self.run_id, exc_info=True)


def _after(query: bytes) -> int | None:
    """Return the number after which events are requested, or None when it is malformed."""
    return parse_whole_number(parse_qs(query.decode("latin-1")).get("after", ["0"])[0])

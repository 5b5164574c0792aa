"""Serve the socket of every page: unread notifications, who else looks at the page, and new kernels of its run.

`?run=` and `?kernel=` identify the page. Messages to the browser, as JSON: `{"kind": "unread", "count": n}`;
`{"kind": "here", "people": [names]}`, including the reader; `{"kind": "generation", "number": n, "title": …}` when a
kernel was added to the run. Close codes are those of a run's socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer

from optimizer.events.payloads import KernelAdded
from optimizer.events.sockets import group_of_person
from optimizer.live import hub
from optimizer.live.presence import Place, Presence
from optimizer.live.rights import MALFORMED, person_of, refusal
from optimizer.live.tail import events_after
from optimizer.models import Run, User
from optimizer.queries.notifications import unread_of
from optimizer.text.whole_numbers import parse_whole_number

BEAT_S = 20.0
logger = logging.getLogger(__name__)


class PersonConsumer(AsyncJsonWebsocketConsumer):
    """Serve one open page of one person."""

    seq: int
    user: User

    async def connect(self) -> None:
        """Accept whoever is signed in and may see the page's run."""
        self._presence: Presence | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._groups: list[str] = []
        self._shown: list[str] = []
        self.run_id = 0
        await self.accept()
        place = _place(self.scope["query_string"])
        self.run_id = place.run_id if place else 0
        refused = MALFORMED if place is None else await refusal(self.scope, self.run_id or None)
        if place is None or refused is not None:
            await self.close(refused)
            return
        self.user = person_of(self.scope)
        await self._join(group_of_person(self.user.pk))
        await self.person_news({})
        if place.run_id:
            await self._arrive(place, self.user.get_username())
        self._keeper = asyncio.create_task(self._keep())

    async def disconnect(self, code: int) -> None:
        """Leave, and notify the others on the page."""
        if self._keeper is not None:
            self._keeper.cancel()
        with contextlib.suppress(Exception):
            hub.leave(self.run_id, self)
            if self._presence is not None:
                await self._presence.leave()
                await self.channel_layer.group_send(self._presence.place.name, {"type": "here.changed"})
            for group in self._groups:
                await self.channel_layer.group_discard(group, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **_kwargs: Any) -> None:
        """Ignore what browsers send."""

    async def person_news(self, message: dict[str, Any]) -> None:
        """Send the number of unread notifications, which has changed."""
        await self.send_json({"kind": "unread", "count": await _unread(self.user.pk)})

    async def person_recheck(self, message: dict[str, Any]) -> None:
        """Check access again after a change of the person's rights."""
        if (refused := await refusal(self.scope, self.run_id or None)) is not None:
            await self.close(refused)

    async def here_changed(self, message: dict[str, Any]) -> None:
        """Send the list of people on the page if it has changed."""
        people = await self._presence.people() if self._presence else []
        # Every heartbeat checks the list, but only a change is worth a message.
        if people != self._shown:
            self._shown = people
            await self.send_json({"kind": "here", "people": people})

    async def run_event(self, message: dict[str, Any]) -> None:
        """Announce a new kernel if the new events contain one."""
        if message["seq"] <= self.seq:
            return
        events = await events_after(message["run"], self.seq, message["seq"])
        self.seq = max(self.seq, events[-1]["seq"] if events else 0)
        for event in events:
            if event["type"] == KernelAdded.type:
                payload = event["payload"]
                await self.send_json({"kind": "generation", "number": payload["number"], "title": payload["title"]})

    async def run_passing(self, message: dict[str, Any]) -> None:
        """Ignore transient news, which only the run's page shows."""

    async def _join(self, group: str) -> None:
        await self.channel_layer.group_add(group, self.channel_name)
        self._groups.append(group)

    async def _arrive(self, place: Place, username: str) -> None:
        # Announce only kernels from now on: the page has just been rendered with all earlier ones.
        self.seq = await _last_seq(place.run_id)
        self._presence = Presence(place, username, self.channel_name)
        await hub.join(place.run_id, self)
        await self._join(place.name)
        await self._presence.touch()
        await self.channel_layer.group_send(place.name, {"type": "here.changed"})

    async def _keep(self) -> None:
        """Record regularly that the page is still open, look for other people, and check access again."""
        while True:
            await asyncio.sleep(BEAT_S)
            try:
                await self.person_recheck({})
                if self._presence is not None:
                    await self._presence.touch()
                    await self.here_changed({})
            except Exception:
                logger.warning("a person's socket missed a heartbeat", exc_info=True)


def _place(query: bytes) -> Place | None:
    """Return the page's place (run 0: none), or None for a malformed address."""
    found = parse_qs(query.decode("latin-1"))
    texts = [found.get(name, [""])[0] for name in ("run", "kernel")]
    run, kernel = (parse_whole_number(text) for text in texts)
    if any(text and number is None for text, number in zip(texts, (run, kernel), strict=True)):
        return None
    return Place(run or 0, kernel)


@database_sync_to_async
def _unread(user_id: int) -> int:
    return unread_of(user_id)


@database_sync_to_async
def _last_seq(run_id: int) -> int:
    return Run.objects.values_list("last_seq", flat=True).get(pk=run_id)

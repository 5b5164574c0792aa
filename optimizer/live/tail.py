"""The newest events of the runs that this process's sockets look at.

Three hundred sockets on one run would ask the database three hundred times for the same event. They ask here: the
first one reads the rows, the others share them. Events never change, so what is kept cannot go stale; what is not
kept is read.

Reading has a thread of its own. On the one that all sockets share, news would wait behind the rights of everybody who
comes back after a restart: seconds, for those who never left.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from channels.db import database_sync_to_async
from django.db import connection

from optimizer.models import RunEvent

EVENTS_KEPT = 256
RUNS_KEPT = 64
TEXTS_KEPT = 64
PAGE = 200


@dataclass
class _Tail:
    """Consecutive events, oldest first. `begun` counts the readings that have begun; after one that filled a page there
    is more (`is_behind`)."""

    events: list[dict[str, Any]] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    begun: int = 0
    is_behind: bool = False


_tails: OrderedDict[int, _Tail] = OrderedDict()
_texts: OrderedDict[tuple[int, int, int], str] = OrderedDict()


async def events_after(run_id: int, after: int, up_to: int | None = None) -> list[dict[str, Any]]:
    """Events `after` < seq in order, `PAGE` at most: ask again from the last one. `up_to` is a number known to
    exist: when the events up to it are at hand, nothing is read."""
    tail = _tail_of(run_id)
    if up_to is not None and (shared := _cut(tail.events, after, up_to)) is not None:
        return shared[:PAGE]
    await _freshen(tail, run_id, after)
    shared = _cut(tail.events, after, after)
    if shared is None or (tail.is_behind and len(shared) < PAGE):
        return await _read(run_id, after)
    return shared[:PAGE]


async def _freshen(tail: _Tail, run_id: int, after: int) -> None:
    """Have everything in the tail that there was at the call, or a page of it. Of all who wait one reads: whoever finds
    that a reading has begun since their call is served by it."""
    wanted = tail.begun + 1
    async with tail.lock:
        if tail.begun >= wanted:
            return
        tail.begun += 1
        try:
            found = await _read(run_id, max(after, tail.events[-1]["seq"] if tail.events else 0))
        except BaseException:
            tail.begun -= 1  # it serves nobody
            raise
        tail.is_behind = len(found) == PAGE
        _keep(tail, found)


def event_as_json(event: RunEvent) -> dict[str, Any]:
    """An event as the sockets and the API carry it."""
    return {
        "seq": event.seq,
        "type": event.type,
        "payload": event.payload,
        "at": event.created_at.isoformat(),
    }


def as_message(run_id: int, events: list[dict[str, Any]]) -> str:
    """The message that carries consecutive events. Written once for all the sockets that stand at the same number."""
    key = (run_id, events[0]["seq"], events[-1]["seq"])
    if key not in _texts:
        while len(_texts) >= TEXTS_KEPT:
            _texts.popitem(last=False)
        _texts[key] = json.dumps({"kind": "events", "events": events})
    return _texts[key]


def _tail_of(run_id: int) -> _Tail:
    """The run's tail; the run longest unasked for makes room."""
    if run_id not in _tails:
        while len(_tails) >= RUNS_KEPT:
            _tails.popitem(last=False)
        _tails[run_id] = _Tail()
    _tails.move_to_end(run_id)
    return _tails[run_id]


def _cut(events: list[dict[str, Any]], after: int, up_to: int) -> list[dict[str, Any]] | None:
    """Events after `after` if all of them up to `up_to` are kept, else None."""
    if not events or events[0]["seq"] > after + 1 or events[-1]["seq"] < up_to:
        return None
    return events[after + 1 - events[0]["seq"] :]


def _keep(tail: _Tail, events: list[dict[str, Any]]) -> None:
    """Add what follows on; a reader far behind leaves the tail alone, one far ahead starts it anew."""
    if not events:
        return
    newest = tail.events[-1]["seq"] if tail.events else None
    if newest is None or events[0]["seq"] > newest + 1:
        tail.events = events[-EVENTS_KEPT:]
    else:
        tail.events = (tail.events + [e for e in events if e["seq"] > newest])[-EVENTS_KEPT:]


def _rows(run_id: int, after: int) -> list[dict[str, Any]]:
    try:
        rows = RunEvent.objects.filter(run_id=run_id, seq__gt=after).order_by("seq")[:PAGE]
        return [event_as_json(event) for event in rows]
    finally:
        connection.close()  # this thread is nobody else's, and may not be asked again for hours


_reader = ThreadPoolExecutor(1, thread_name_prefix="events")
_read = database_sync_to_async(_rows, thread_sensitive=False, executor=_reader)

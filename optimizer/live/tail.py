"""Cache the newest events of the runs that this process's sockets look at.

Three hundred sockets on one run would read the same event three hundred times. Here the first one reads the rows and
shares them with the others. Events never change, so the cache cannot go stale; what is not cached is read.

Reading has its own thread. On the thread that all sockets share, new events would wait for seconds behind the access
checks of everybody who reconnects after a restart.
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

from optimizer.events.payloads import (
    CallEnded,
    CommentEdited,
    ReviewPublished,
    ThreadChanged,
    ToolCalled,
    ToolEnded,
)
from optimizer.models import RunEvent

EVENTS_KEPT = 256
RUNS_KEPT = 64
TEXTS_KEPT = 64
PAGE = 200
# Pages only learn from a message that there is something new, and fetch their parts as HTML. The exceptions are the
# panes of tokens (static/js/tokens.js), which end with their call, and the news of a review (static/js/review.js).
USED_BY_PAGES = {
    ReviewPublished.type: ("by", "verdict", "comments", "number"),
    ThreadChanged.type: ("thread", "state", "by"),
    CommentEdited.type: ("by",),
    CallEnded.type: ("call", "state"),
    ToolCalled.type: ("call", "role", "tool"),
    ToolEnded.type: ("call", "role", "tool", "state", "headline"),
}


@dataclass
class _Tail:
    """Hold consecutive events, oldest first.

    `begun` counts the reads that have started. `is_behind` is True when the last read filled a page, so that more
    rows exist.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    begun: int = 0
    is_behind: bool = False


_tails: OrderedDict[int, _Tail] = OrderedDict()
_texts: OrderedDict[tuple[int, int, int], str] = OrderedDict()


async def events_after(run_id: int, after: int, up_to: int | None = None) -> list[dict[str, Any]]:
    """Return events with `after` < seq in order, at most `PAGE`; ask again from the last one for more.

    `up_to` is a number that is known to exist: when the events up to it are cached, nothing is read.
    """
    tail = _tail_of(run_id)
    # The common case: another socket has just read the announced event.
    if up_to is not None and (shared := _cut(tail.events, after, up_to)) is not None:
        return shared[:PAGE]
    await _freshen(tail, run_id, after)
    shared = _cut(tail.events, after, after)
    if shared is None or (tail.is_behind and len(shared) < PAGE):
        return await _read(run_id, after)
    return shared[:PAGE]


async def _freshen(tail: _Tail, run_id: int, after: int) -> None:
    """Bring the cache up to date with the moment of the call, or by one page.

    Coalesce concurrent reads: the first waiter queries the database and shares the rows with the others. A read that
    started after the call serves the caller; an earlier one may have missed the newest event.
    """
    # A read that is already running may have missed events committed after it began; only the next one is sure to
    # see them.
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


def as_message(run_id: int, events: list[dict[str, Any]]) -> str:
    """Return the message with consecutive events, serialised once for all sockets at the same position."""
    key = (run_id, events[0]["seq"], events[-1]["seq"])
    if key not in _texts:
        # Oldest first: only the newest few messages are sent by many sockets at the same time.
        while len(_texts) >= TEXTS_KEPT:
            _texts.popitem(last=False)
        _texts[key] = json.dumps({"kind": "events", "events": [_for_page(event) for event in events]})
    return _texts[key]


def _for_page(event: dict[str, Any]) -> dict[str, Any]:
    """Return what a page uses of an event."""
    payload = {name: event["payload"][name] for name in USED_BY_PAGES.get(event["type"], ())}
    return {"seq": event["seq"], "type": event["type"], "payload": payload}


def _tail_of(run_id: int) -> _Tail:
    """Return the run's cache, evicting the least recently used one if necessary."""
    if run_id not in _tails:
        while len(_tails) >= RUNS_KEPT:
            _tails.popitem(last=False)
        _tails[run_id] = _Tail()
    _tails.move_to_end(run_id)
    return _tails[run_id]


def _cut(events: list[dict[str, Any]], after: int, up_to: int) -> list[dict[str, Any]] | None:
    """Return the events after `after` if all of them up to `up_to` are cached, else None."""
    if not events or events[0]["seq"] > after + 1 or events[-1]["seq"] < up_to:
        return None
    return events[after + 1 - events[0]["seq"] :]


def _keep(tail: _Tail, events: list[dict[str, Any]]) -> None:
    """Append consecutive events.

    A reader far behind leaves the cache alone; one far ahead restarts it.
    """
    if not events:
        return
    newest = tail.events[-1]["seq"] if tail.events else None
    if newest is None or events[0]["seq"] > newest + 1:
        # A gap cannot be represented, so the cache restarts at the newer events.
        tail.events = events[-EVENTS_KEPT:]
    else:
        tail.events = (tail.events + [e for e in events if e["seq"] > newest])[-EVENTS_KEPT:]


def _rows(run_id: int, after: int) -> list[dict[str, Any]]:
    try:
        rows = RunEvent.objects.filter(run_id=run_id, seq__gt=after).order_by("seq")[:PAGE]
        return [{"seq": event.seq, "type": event.type, "payload": event.payload} for event in rows]
    finally:
        connection.close()  # this thread is nobody else's, and may not be asked again for hours


_reader = ThreadPoolExecutor(1, thread_name_prefix="events")
_read = database_sync_to_async(_rows, thread_sensitive=False, executor=_reader)

"""Send to the sockets: the only module that does so. It never raises, never blocks, and never sends before commit.

Messages name a run and its newest event; the table is the truth. Sending happens on an event loop in its own thread
(one per process, created anew after a fork), so an unreachable Redis costs a warning in the log and nothing else.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import os
import threading
from typing import Any

from channels.layers import get_channel_layer
from django.db import transaction

from optimizer.models import RunEvent

SEND_PATIENCE_S = 5.0
logger = logging.getLogger(__name__)


def group_of(run_id: int) -> str:
    """Return the channel group of a run's sockets."""
    return f"run.{run_id}"


def announce_event(event: RunEvent) -> None:
    """Announce after commit that the run has events up to this one."""
    message = {"type": "run.event", "run": event.run_id, "seq": event.seq}
    transaction.on_commit(lambda: publish(group_of(event.run_id), message))


def broadcast(run_id: int, kind: str, **content: Any) -> None:
    """Broadcast transient news of a run (`token`, `stage`) to whoever is looking. Senders limit themselves to 10 per
    second.
    """
    publish(group_of(run_id), {"type": "run.passing", "run": run_id, "kind": kind, "content": content})


def group_of_person(user_id: int) -> str:
    """Return the channel group of a person's sockets."""
    return f"person.{user_id}"


def recheck_access(user_id: int) -> None:
    """Make the person's sockets check access again after commit, and close where it is lost."""
    transaction.on_commit(lambda: publish(group_of_person(user_id), {"type": "person.recheck"}))


def announce_unread(user_id: int) -> None:
    """Announce after commit that the number of unread notifications has changed."""
    transaction.on_commit(lambda: publish(group_of_person(user_id), {"type": "person.news"}))


def publish(group: str, message: dict[str, Any]) -> None:
    """Send to a group in the background. Never raises."""
    try:
        future = asyncio.run_coroutine_threadsafe(_send(group, message), _loop())
        _pending.add(future)
        future.add_done_callback(_pending.discard)
        # Nobody waits for the result; without a callback an error would be lost silently.
        future.add_done_callback(_complain)
    except Exception:
        logger.warning("a message to group %s could not be sent", group, exc_info=True)


async def _send(group: str, message: dict[str, Any]) -> None:
    layer = get_channel_layer()
    if layer is None:
        raise RuntimeError("there is no channel layer")
    # A stalled Redis must not let messages pile up in memory.
    async with asyncio.timeout(SEND_PATIENCE_S):
        await layer.group_send(group, message)


def _complain(future: Any) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        logger.warning("a message to the sockets was lost: %r", error)


def _send_what_is_left() -> None:
    """Wait for messages that are on their way: a command that changes a password ends at once."""
    concurrent.futures.wait(list(_pending), timeout=SEND_PATIENCE_S)


atexit.register(_send_what_is_left)
_pending: set[concurrent.futures.Future[None]] = set()
_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def _loop() -> asyncio.AbstractEventLoop:
    """Return this process's sending loop; a forked child creates its own."""
    with _lock:
        if (loop := _loops.get(os.getpid())) is None:
            # The thread of an inherited loop does not exist in this process.
            _loops.clear()
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="announcer", daemon=True).start()
        return loop


# A fork may happen while another thread holds the lock, which would then stay locked in the child forever.
os.register_at_fork(after_in_child=lambda: globals().update(_lock=threading.Lock(), _pending=set()))

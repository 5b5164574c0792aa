"""Network on one thread, database on another.

Providers speak asyncio, because only there a request can be given up at any moment; Django's database is used
synchronously. So the request runs on a loop in a thread of its own, and the caller's thread takes the pieces as
they come, and asks a few times a second whether the answer is still wanted.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")
TICK_S = 0.2


class PumpCancelledError(Exception):
    """The caller no longer wanted the answer."""


class Pump(Generic[T]):
    """One asynchronous piece of work whose text output is handed to a synchronous caller."""

    def __init__(self, work: Callable[[Callable[[str], None]], Awaitable[T]]) -> None:
        self._work = work
        self._pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[T] | None = None
        self._result: T | None = None
        self._error: BaseException | None = None

    def run(self, on_piece: Callable[[str], None], cancelled: Callable[[], bool]) -> T:
        """The work's result. Raises what it raised, what `on_piece` or `cancelled` raised, or PumpCancelledError."""
        thread = threading.Thread(target=self._run_loop, name="provider", daemon=True)
        thread.start()
        self._ready.wait()
        try:
            self._drain(on_piece, cancelled)
        finally:
            self._stop()
            thread.join()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # without an error there is a result

    def _drain(self, on_piece: Callable[[str], None], cancelled: Callable[[], bool]) -> None:
        while True:
            if cancelled():
                raise PumpCancelledError
            with contextlib.suppress(queue.Empty):
                first = self._pieces.get(timeout=TICK_S)
                text, ended = self._rest(first)
                if text:
                    on_piece(text)
                if ended:
                    return

    def _rest(self, first: str | None) -> tuple[str, bool]:
        """Everything that waits in the queue as one piece, and whether the work has ended."""
        pieces: list[str] = []
        piece = first
        while piece is not None:
            pieces.append(piece)
            try:
                piece = self._pieces.get_nowait()
            except queue.Empty:
                return "".join(pieces), False
        return "".join(pieces), True

    def _run_loop(self) -> None:
        try:
            self._result = asyncio.run(self._supervise())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()
            self._pieces.put(None)

    async def _supervise(self) -> T:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self._work(self._pieces.put))
        self._ready.set()
        return await self._task

    def _stop(self) -> None:
        """Give the work up, if it still runs."""
        loop, task = self._loop, self._task
        if loop is not None and task is not None and not task.done():
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)

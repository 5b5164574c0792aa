"""Run network code on one thread and database code on another.

Providers use asyncio, because only there can a request be cancelled at any moment, while Django's database is used
synchronously. The request therefore runs on an event loop in its own thread. The caller's thread receives the pieces
as they arrive and checks a few times per second whether the answer is still wanted.
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
    """Report that the caller no longer wants the answer."""


class Pump(Generic[T]):
    """Run one asynchronous function and hand its text output to a synchronous caller."""

    def __init__(self, work: Callable[[Callable[[str], None]], Awaitable[T]]) -> None:
        self._work = work
        self._pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[T] | None = None
        self._result: T | None = None
        self._error: BaseException | None = None

    def run(self, on_piece: Callable[[str], None], cancelled: Callable[[], bool]) -> T:
        """Return the result of the work.

        Raises what the work raised, what `on_piece` or `cancelled` raised, or PumpCancelledError.
        """
        thread = threading.Thread(target=self._run_loop, name="provider", daemon=True)
        thread.start()
        # The task must exist before it can be cancelled.
        self._ready.wait()
        try:
            self._drain(on_piece, cancelled)
        finally:
            self._stop()
            # The result is complete only when the loop has ended, including its clean-up.
            thread.join()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # without an error there is a result

    def _drain(self, on_piece: Callable[[str], None], cancelled: Callable[[], bool]) -> None:
        while True:
            if cancelled():
                raise PumpCancelledError
            with contextlib.suppress(queue.Empty):
                # The timeout bounds how long a cancellation goes unnoticed.
                first = self._pieces.get(timeout=TICK_S)
                text, ended = self._rest(first)
                if text:
                    on_piece(text)
                if ended:
                    return

    def _rest(self, first: str | None) -> tuple[str, bool]:
        """Return everything that waits in the queue as one piece, and whether the work has ended."""
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
            # None marks the end. It comes after the result is set, so the reader may use the result once it sees
            # the mark.
            self._pieces.put(None)

    async def _supervise(self) -> T:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self._work(self._pieces.put))
        self._ready.set()
        return await self._task

    def _stop(self) -> None:
        """Cancel the work if it is still running."""
        loop, task = self._loop, self._task
        if loop is not None and task is not None and not task.done():
            # The loop may close between the check and this call.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)

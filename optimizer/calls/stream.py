"""Send an answer's tokens to open pages: buffered, at most eight times per second, and never stored."""

from __future__ import annotations

import time

from optimizer.events.sockets import broadcast
from optimizer.llm.port import MAX_ANSWER_CHARACTERS

INTERVAL_S = 0.125
MAX_PIECE_CHARACTERS = 4_000


class TokenStream:
    """Buffer the live text of one call.

    `start` in each message is the position of its first character, so that a page which missed a message notices the
    gap.
    """

    def __init__(self, run_id: int, call_id: int, role: str, turn: int = 0) -> None:
        self._run_id, self._call_id, self._role = run_id, call_id, role
        self._waiting = ""
        # Every turn of a call begins behind the longest one before it, so that positions never repeat.
        self._sent = turn * 2 * MAX_ANSWER_CHARACTERS
        self._last_at = 0.0

    def add(self, text: str) -> None:
        """Add a piece, and send the buffer if it is time."""
        self._waiting += text
        if time.monotonic() - self._last_at >= INTERVAL_S:
            self.flush()

    def flush(self) -> None:
        """Send the buffer. Of a very fast answer only the newest part is shown."""
        if not self._waiting:
            return
        shown = self._waiting[-MAX_PIECE_CHARACTERS:]
        # The position counts characters that were skipped, so that pages notice the gap.
        start = self._sent + len(self._waiting) - len(shown)
        broadcast(self._run_id, "token", call=self._call_id, role=self._role, start=start, text=shown)
        self._sent += len(self._waiting)
        self._waiting, self._last_at = "", time.monotonic()

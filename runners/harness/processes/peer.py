"""Converse with another process, from the referee's end."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from runners.candidate.channel import Channel, ChannelClosed, ChannelError, ChannelTimeout
from runners.errors import Cancelled
from runners.waiting import readable
from runners.wire import storable_text

# How often a cancellation is noticed; waiting itself costs nothing.
POLL_S = 0.2
DESCRIPTOR_S = 10.0


class Refused(Exception):
    """Report that the far end answered that it failed.

    `kind` is the exception's class there, `text` its traceback. Both are claims.
    """

    def __init__(self, kind: str, message: str, text: str) -> None:
        super().__init__(message)
        self.kind, self.message, self.text = kind, message, text


@dataclass(frozen=True)
class Late:
    """Name what to do if an answer takes longer than `after_s` seconds."""

    after_s: float
    act: Callable[[], None]


class Peer:
    """Converse with one far end.

    Each question has a nonce, which its answer repeats, and a time limit. `cancel` ends the waiting.
    """

    def __init__(self, cancel: Callable[[], bool] | None = None) -> None:
        self._socket, self.far_socket = socket.socketpair()
        self._channel = Channel(self._socket.fileno())
        self.cancel = cancel

    def started(self) -> None:
        """Close our copy of the far end's descriptor, so that its death shows as the end of the stream."""
        self.far_socket.close()

    @property
    def silent(self) -> bool:
        """Return whether nothing of the far end waits to be read: no answer, and not the connection's end."""
        return not readable(self._socket.fileno(), 0)

    def ask(
        self,
        question: dict[str, Any],
        timeout_s: float,
        descriptors: Sequence[int] = (),
        late: Late | None = None,
    ) -> dict[str, Any]:
        """Send a question, with descriptors after it, and wait for its answer.

        `late` acts if the answer takes longer than its limit, and again while waiting goes on. Raises Refused,
        ChannelTimeout, ChannelClosed, ChannelError, Cancelled.
        """
        return self.hear(self.pose(question, descriptors), timeout_s, late)

    def pose(self, question: dict[str, Any], descriptors: Sequence[int] = ()) -> str:
        """Send a question without waiting for its answer, and return its nonce for `hear`. Raises ChannelClosed.

        Several questions may be under way. The far end answers them in order.
        """
        nonce = secrets.token_hex(8)
        self._channel.send({**question, "nonce": nonce})
        for descriptor in descriptors:
            self._hand_over(descriptor)
        return nonce

    def hear(self, nonce: str, timeout_s: float, late: Late | None = None) -> dict[str, Any]:
        """Wait for the answer to the question with that nonce, as `ask` does."""
        deadline = time.monotonic() + timeout_s
        if late is not None and not self._answered(late.after_s):
            late.act()
        self._wait(deadline, late)
        answer = self._channel.receive(max(0.1, deadline - time.monotonic()))
        # A process that answers before it was asked can't know the nonce, so an old or prepared answer is rejected.
        if answer.get("nonce") != nonce:
            raise ChannelError("an answer without the question's nonce")
        if answer.get("ok") is not True:
            raise Refused(*(storable_text(str(answer.get(key, "")))[:4000] for key in ("kind", "message", "text")))
        return answer

    def _hand_over(self, descriptor: int) -> None:
        try:
            socket.send_fds(self._socket, [b"d"], [descriptor])
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def take_descriptor(self) -> int:
        """Return the descriptor that follows an answer. Raises ChannelError."""
        # It is sent with the answer; a far end that keeps it back must not be waited for without end.
        if not self._answered(DESCRIPTOR_S):
            raise ChannelError("an answer without its descriptor")
        _, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        if not descriptors:
            raise ChannelError("an answer without its descriptor")
        return descriptors[0]

    def close(self) -> None:
        """Close the connection; the far end leaves its loop."""
        self._socket.close()
        self.far_socket.close()

    def _answered(self, within_s: float) -> bool:
        return readable(self._socket.fileno(), within_s)

    def _wait(self, deadline: float, late: Late | None) -> None:
        while not self._answered(min(POLL_S, max(0.0, deadline - time.monotonic()))):
            if late is not None:
                late.act()  # again: the far end may have begun what the act ends only after the last time
            if self.cancel is not None and self.cancel():
                raise Cancelled
            if time.monotonic() >= deadline:
                raise ChannelTimeout("no answer in time")

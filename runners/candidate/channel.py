"""Exchange length-prefixed JSON over one file descriptor: four bytes big-endian, then UTF-8 text.

Both ends use this. The far end may be hostile: lengths are limited before anything is read, and only JSON objects are
accepted. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import math
import os
import select
import socket
import time
from typing import Any

# Far more than any real message: a larger length is an attempt to exhaust the referee's memory.
MESSAGE_BYTES = 1 << 20


class ChannelError(Exception):
    """Report that a message is malformed."""


class ChannelClosed(ChannelError):
    """Report that the far end is gone."""


class ChannelTimeout(ChannelError):
    """Report that no complete message arrived in time."""


class Channel:
    """Use one end of a stream socket or pipe pair, blocking."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def send(self, message: dict[str, Any]) -> None:
        """Write one whole message. Raises ChannelClosed if nobody reads."""
        body = json.dumps(message).encode()
        view = memoryview(len(body).to_bytes(4, "big") + body)
        try:
            while view:
                view = view[os.write(self.descriptor, view) :]
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Read one message. Raises ChannelClosed, ChannelTimeout, ChannelError."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        size = int.from_bytes(self._exactly(4, deadline), "big")
        if size > MESSAGE_BYTES:
            raise ChannelError(f"a message of {size} bytes")
        try:
            message = json.loads(self._exactly(size, deadline))
        except (ValueError, RecursionError) as error:
            raise ChannelError("not JSON") from error
        if not isinstance(message, dict):
            raise ChannelError("not a JSON object")
        return message

    def take_descriptor(self) -> int:
        """Return the descriptor that follows a message. Raises ChannelError."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, os.dup(self.descriptor)) as stream:
            _, descriptors, _, _ = socket.recv_fds(stream, 1, 1)
        if not descriptors:
            raise ChannelError("a message without its descriptor")
        return descriptors[0]

    def _exactly(self, count: int, deadline: float | None) -> bytes:
        parts = []
        while count:
            self._wait(deadline)
            try:
                part = os.read(self.descriptor, count)
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            if not part:
                raise ChannelClosed("the far end closed")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _wait(self, deadline: float | None) -> None:
        if deadline is None:
            return
        left = max(0.0, deadline - time.monotonic())
        waiting = select.poll()  # select.select refuses descriptors from 1024 on
        waiting.register(self.descriptor, select.POLLIN)
        if not waiting.poll(math.ceil(left * 1e3)):
            raise ChannelTimeout("no answer in time")

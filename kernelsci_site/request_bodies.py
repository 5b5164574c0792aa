"""Limit the bodies of requests and the messages of sockets before they are stored, whoever sends them.

Daphne takes in a whole body before it calls the application, and has no limit of its own, so a caller without an
account could fill the disk. Django's DATA_UPLOAD_MAX_MEMORY_SIZE is only checked afterwards.
"""

from __future__ import annotations

import json

from daphne import http_protocol, server
from django.conf import settings

# Most clients read the answer only after they have sent everything, so the rest of a refused body is read and thrown
# away, up to so much.
MOST_DISCARDED_BYTES = 64 << 20
# Pages send nothing over their sockets.
MOST_MESSAGE_BYTES = 4096


class BoundedSockets(server.WebSocketFactory):  # type: ignore[misc]  # Daphne has no types
    """Close a socket whose browser sends a long message, which would be kept in memory up to its end."""

    def resetProtocolOptions(self) -> None:
        """Set limits where autobahn has none."""
        super().resetProtocolOptions()
        self.maxFramePayloadSize = self.maxMessagePayloadSize = MOST_MESSAGE_BYTES


class BoundedRequest(http_protocol.WebRequest):  # type: ignore[misc]  # Daphne has no types
    """Refuse a request whose body is longer than Django accepts, at its first byte too many."""

    _received_bytes = 0
    _is_refused = False

    def gotLength(self, length: int | None) -> None:
        """Refuse by the length that the request declares; None where it is sent in chunks."""
        super().gotLength(length)
        if length is not None and length > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            self._refuse()

    def handleContentChunk(self, data: bytes) -> None:
        """Store a part of the body, unless it makes the body too long."""
        self._received_bytes += len(data)
        if self._received_bytes > MOST_DISCARDED_BYTES:
            self.channel.loseConnection()
        elif self._received_bytes > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            self._refuse()
        elif not self._is_refused:
            super().handleContentChunk(data)

    def process(self) -> None:
        """Hand the request on, unless it was refused."""
        if self._is_refused:
            self.channel.loseConnection()
        else:
            super().process()

    def _refuse(self) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        words = f"A request holds at most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE >> 20} MiB."
        body = json.dumps({"detail": words}).encode()
        head = (
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        )
        self.channel.transport.write(b"HTTP/1.1 413 Content Too Large\r\n" + head + body)


def bound_bodies() -> None:
    """Let Daphne make bounded requests and sockets. It looks the classes up by these names when it needs them."""
    http_protocol.WebRequest = BoundedRequest
    server.WebSocketFactory = BoundedSockets

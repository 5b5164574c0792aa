"""Keep the head and the tail of an endless stream."""

from __future__ import annotations


class Capture:
    """Keep the first and the last `limit_bytes / 2` of everything that was added, and count the bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._half = max(limit_bytes // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0

    def add(self, data: bytes) -> None:
        self.total_bytes += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        # Trimmed after each chunk, so that memory stays bounded whatever the process prints.
        del self._tail[: -self._half]

    def text(self) -> str:
        """Return what was kept, with a note of how many bytes were left out between head and tail."""
        left_out = self.total_bytes - len(self._head) - len(self._tail)
        note = f"\n[… {left_out} bytes left out …]\n".encode() if left_out else b""
        return (bytes(self._head) + note + bytes(self._tail)).decode("utf-8", "replace")

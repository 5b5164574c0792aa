"""Lay out and check the memory that a participant computes in.

On the CPU an arena is shared memory that the referee maps itself. On a GPU it is device memory that the oracle's
process shares; the referee, which never touches the device, asks the oracle to lay it out and to check it.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from runners.harness.memory.shared_memory import SharedMemory

# Put one question to the oracle's process and return its answer. Raises InfraFailure.
Ask = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Piece:
    """Describe a range of an arena and its content: one byte repeated, or an input if `name` is set.

    An input belongs to the content with that number and lies at `reference_offset`.
    """

    offset: int
    size_bytes: int
    byte: int = 0
    content: int = 0
    name: str = ""
    reference_offset: int = 0


class Arena(ABC):
    """Hold the memory in which participants compute, one after the other.

    `descriptor` and `device` are what a participant needs to map it (`device` None: shared memory of the host).
    `users` counts the participants; the memory is given back when the last one closes it. With `shared` there are
    several, and what one leaves is overwritten before the next. With `frugal` their calls take so much memory that a
    participant gives back what it keeps before another computes.
    """

    size_bytes: int
    descriptor: int
    device: dict[str, Any] | None = None
    users: int = 1
    shared: bool = False
    frugal: bool = False

    @abstractmethod
    def lay(self, pieces: Sequence[Piece]) -> None:
        """Write all pieces."""

    @abstractmethod
    def first_difference(self, pieces: Sequence[Piece]) -> int | None:
        """Return the index of the first piece that has changed since it was laid, or None."""

    def first_untouched(self, pieces: Sequence[Piece]) -> int | None:
        """Return the index of the first piece that is still whole as it was laid, or None.

        Checked only if a participant could go on computing after its answer; a device was idle when it was given.
        """
        return None

    @abstractmethod
    def same(self, pairs: Sequence[tuple[int, int, int]]) -> bool:
        """Return whether two ranges are equal, for every pair of offsets and size."""

    @abstractmethod
    def digest(self, ranges: Sequence[tuple[int, int]]) -> str:
        """Return what tells the bytes of ranges, given by offset and size, from others."""

    @abstractmethod
    def close(self) -> None:
        """Give the memory back."""


class SharedArena(Arena):
    """Use shared memory of the host, with the reference buffers that inputs come from."""

    def __init__(self, name: str, size_bytes: int, reference_buffers: SharedMemory) -> None:
        self.memory = SharedMemory(name, size_bytes)
        self._reference_buffers = reference_buffers
        self.size_bytes, self.descriptor = self.memory.size_bytes, self.memory.descriptor

    def lay(self, pieces: Sequence[Piece]) -> None:
        """Write all pieces."""
        for piece in pieces:
            if piece.name:
                self.memory.copy_from(
                    piece.offset, self._reference_buffers, piece.reference_offset, piece.size_bytes
                )
            else:
                self.memory.fill(piece.offset, piece.size_bytes, piece.byte)

    def first_difference(self, pieces: Sequence[Piece]) -> int | None:
        """Return the index of the first piece that has changed since it was laid, or None."""
        return next((n for n, piece in enumerate(pieces) if not self._holds(piece)), None)

    def first_untouched(self, pieces: Sequence[Piece]) -> int | None:
        """Return the index of the first piece that is still whole as it was laid, or None."""
        return next((n for n, piece in enumerate(pieces) if piece.size_bytes and self._holds(piece)), None)

    def _holds(self, piece: Piece) -> bool:
        if piece.name:
            return self.memory.equals(
                piece.offset, self._reference_buffers, piece.reference_offset, piece.size_bytes
            )
        return self.memory.filled(piece.offset, piece.size_bytes, piece.byte)

    def same(self, pairs: Sequence[tuple[int, int, int]]) -> bool:
        """Return whether two ranges are equal, for every pair of offsets and size."""
        return all(self.memory.equals(one, self.memory, two, size) for one, two, size in pairs)

    def digest(self, ranges: Sequence[tuple[int, int]]) -> str:
        """Return what tells the bytes of ranges, given by offset and size, from others."""
        return " ".join(self.memory.digest(offset, size_bytes) for offset, size_bytes in ranges)

    def close(self) -> None:
        """Close the descriptor; the mapping goes with the last reference to it."""
        self.memory.close()
        self.descriptor = -1


class DeviceArena(Arena):
    """Use device memory of the oracle's process, which carries out each operation."""

    def __init__(self, ask: Ask, number: int, descriptor: int, device: dict[str, Any]) -> None:
        self._ask, self.number = ask, number
        self.descriptor, self.device = descriptor, device
        self.size_bytes = int(device["size_bytes"])
        self._closing = threading.Lock()

    def lay(self, pieces: Sequence[Piece]) -> None:
        """Write all pieces, and empty the device's caches of them. What another user left is overwritten first."""
        self._request("lay", pieces=[_plain(piece) for piece in pieces], wipe=self.shared)

    def first_difference(self, pieces: Sequence[Piece]) -> int | None:
        """Return the index of the first piece that has changed since it was laid, or None."""
        index: int | None = self._request("differing", pieces=[_plain(piece) for piece in pieces])["index"]
        return index

    def same(self, pairs: Sequence[tuple[int, int, int]]) -> bool:
        """Return whether two ranges are equal, for every pair of offsets and size."""
        return bool(self._request("same", pairs=list(pairs))["same"])

    def digest(self, ranges: Sequence[tuple[int, int]]) -> str:
        """Return what tells the bytes of ranges, given by offset and size, from others."""
        return str(self._request("digest", ranges=list(ranges))["digest"])

    def close(self) -> None:
        """Close the descriptor here and the mapping there once the last user is done; a participant that still lives
        keeps the memory."""
        with self._closing:  # the sides of a session are closed at the same time
            self.users -= 1
            if self.users <= 0 and self.descriptor >= 0:
                os.close(self.descriptor)
                self.descriptor = -1
                self._request("close")

    def _request(self, what: str, **details: Any) -> dict[str, Any]:
        return self._ask({"op": what, "arena": self.number, **details})


def _plain(piece: Piece) -> list[int | str]:
    return [piece.offset, piece.size_bytes, piece.byte, piece.content, piece.name]

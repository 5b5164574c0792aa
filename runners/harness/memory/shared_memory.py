"""Share memory between processes: the arena in which a participant computes, and the reference buffers it never sees.

Both are anonymous files (memfd) whose size is sealed, so that a participant can't shrink one under the referee. The C
library moves, fills and compares bytes on raw addresses; no numpy, which keeps the referee's start cheap. Offsets and
sizes are in bytes.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import mmap
import os
import random
from dataclasses import dataclass

# What cudaMalloc guarantees, so that vectorised loads are legal on every buffer.
ALIGNMENT_BYTES = 256
# A page: wider than any vector store.
GUARD_BYTES = 4096
# NaN as a float, so that a kernel that reads beyond its input notices.
GUARD_FILL = 0xFF
# From linux/fcntl.h.
_F_ADD_SEALS, _F_SEAL_SHRINK, _F_SEAL_GROW = 1033, 2, 4

_libc = ctypes.CDLL(None)
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class SharedMemory:
    """Map a sealed anonymous file, which is passed on by its descriptor."""

    def __init__(self, name: str, size_bytes: int) -> None:
        self.size_bytes = -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self.descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, self.size_bytes)
        # Without the seals a participant could truncate the file, and the referee's next access would end it with
        # SIGBUS.
        fcntl.fcntl(self.descriptor, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW)
        self._map = mmap.mmap(self.descriptor, self.size_bytes)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def fill(self, offset: int, size_bytes: int, byte: int) -> None:
        """Set a range to one byte's value."""
        ctypes.memset(self._at(offset, size_bytes), byte, size_bytes)

    def copy_from(self, offset: int, source: SharedMemory, source_offset: int, size_bytes: int) -> None:
        """Copy a range from another memory."""
        ctypes.memmove(self._at(offset, size_bytes), source._at(source_offset, size_bytes), size_bytes)

    def equals(self, offset: int, other: SharedMemory, other_offset: int, size_bytes: int) -> bool:
        """Return whether two ranges are the same, byte for byte."""
        mine, theirs = self._at(offset, size_bytes), other._at(other_offset, size_bytes)
        return bool(_libc.memcmp(mine, theirs, size_bytes) == 0)

    def digest(self, offset: int, size_bytes: int) -> str:
        """Return a digest of a range."""
        return hashlib.blake2b((ctypes.c_char * size_bytes).from_address(self._at(offset, size_bytes))).hexdigest()

    def filled(self, offset: int, size_bytes: int, byte: int) -> bool:
        """Return whether a range holds one byte's value throughout."""
        if size_bytes == 0:
            return True
        start = self._at(offset, size_bytes)
        first = ctypes.string_at(start, 1)[0] == byte
        # A range equals itself shifted by one byte exactly if all of its bytes are equal.
        return first and bool(_libc.memcmp(start, start + 1, size_bytes - 1) == 0)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return a copy of a range."""
        self._at(offset, size_bytes)  # checks the range; ctypes.string_at would end at 2 GiB
        return self._map[offset : offset + size_bytes]

    def write(self, offset: int, data: bytes) -> None:
        """Overwrite a range."""
        ctypes.memmove(self._at(offset, len(data)), data, len(data))

    def discard(self, offset: int, size_bytes: int) -> None:
        """Give whole pages of a range back to the machine; they read as zeros afterwards."""
        first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (offset + size_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first:
            self._map.madvise(mmap.MADV_REMOVE, first, last - first)

    def close(self) -> None:
        """Close the descriptor; the mapping goes with the last reference to it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _at(self, offset: int, size_bytes: int) -> int:
        if offset < 0 or size_bytes < 0 or offset + size_bytes > self.size_bytes:
            raise ValueError(f"range {offset}+{size_bytes} outside {self.size_bytes} bytes")
        return self._base + offset


@dataclass
class Bump:
    """Hand out consecutive aligned ranges of a memory."""

    size_bytes: int
    next_offset: int = 0

    def allocate(self, size_bytes: int) -> int:
        """Return the offset of a fresh range. Raises MemoryError if the memory is used up."""
        offset = aligned(self.next_offset)
        if offset + size_bytes > self.size_bytes:
            raise MemoryError(f"{size_bytes} bytes do not fit into the reference buffers")
        self.next_offset = offset + size_bytes
        return offset


def aligned(offset: int) -> int:
    """Return the next multiple of the alignment that every buffer has."""
    return -(-offset // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def slot_bytes(buffers: list[int]) -> int:
    """Return the most bytes that one call's buffers take in an arena, guards and random gaps included."""
    return sum(aligned(size) + 2 * GUARD_BYTES + 16 * ALIGNMENT_BYTES for size in buffers)


def place(arena_bytes: int, calls: list[list[int]], rng: random.Random) -> list[list[int]]:
    """Return offsets for every buffer of every call, each with a guard on both sides.

    Addresses differ from request to request: slots are in random order, with random gaps between buffers. Raises
    MemoryError if the calls do not fit.
    """
    order = list(range(len(calls)))
    rng.shuffle(order)
    placed: list[list[int]] = [[] for _ in calls]
    # The start is drawn from the unused rest of the arena, so that addresses change from request to request.
    slack = max(0, arena_bytes - sum(slot_bytes(sizes) for sizes in calls))
    position = rng.randrange(slack // ALIGNMENT_BYTES + 1) * ALIGNMENT_BYTES
    for index in order:
        for size in calls[index]:
            offset = aligned(position + GUARD_BYTES + rng.randrange(15) * ALIGNMENT_BYTES)
            placed[index].append(offset)
            position = offset + aligned(size) + GUARD_BYTES
    if position > arena_bytes:
        raise MemoryError(f"{len(calls)} calls do not fit into {arena_bytes} bytes")
    return placed

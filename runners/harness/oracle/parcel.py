"""Carry files out of an oracle's sandbox, which has nowhere to write: one behind the other in a single open file.

The oracle is given the descriptor of an empty file and appends to it; the referee, which trusts neither names nor
sizes, makes files of it in a folder that the oracle never sees. Standard library only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

# A cache line, which is more than any dtype needs.
ALIGNMENT_BYTES = 64
MOST_FILES = 10_000
CHUNK_BYTES = 64 << 20
# NAME.json, NAME.bin and modules/FILE; a name that starts with a dot could be a folder's.
_NAME = re.compile(r"(?:modules/)?[A-Za-z0-9_][\w.-]{0,99}", re.ASCII)


class Parcel:
    """Append files to an open one. `entries` lists name, offset and size of each."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.entries: list[tuple[str, int, int]] = []

    @contextmanager
    def entry(self, name: str) -> Iterator[BinaryIO]:
        """Let the block write a file's content, which begins at an aligned place."""
        self._file.write(b"\0" * (-self._file.tell() % ALIGNMENT_BYTES))
        start = self._file.tell()
        yield self._file
        self.entries.append((name, start, self._file.tell() - start))

    def add(self, name: str, content: bytes) -> None:
        """Append a whole file."""
        with self.entry(name) as file:
            file.write(content)


def unpack(descriptor: int, entries: Sequence[Any], folder: Path) -> None:
    """Make the files of a parcel in a folder. Raises ValueError for names and ranges that no oracle of ours sends."""
    if len(entries) > MOST_FILES:
        raise ValueError(f"a parcel of {len(entries)} files")
    size_bytes = os.fstat(descriptor).st_size
    for name, start, count in entries:
        if not _NAME.fullmatch(name) or not 0 <= start <= start + count <= size_bytes:
            raise ValueError(f"a parcel with {name!r} at {start}+{count} of {size_bytes} bytes")
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        with path.open("xb") as file:
            _copy(descriptor, start, count, file)


def _copy(descriptor: int, start: int, count: int, file: BinaryIO) -> None:
    end = start + count
    while start < end:
        copied = os.sendfile(file.fileno(), descriptor, start, min(end - start, CHUNK_BYTES))
        if copied == 0:
            raise ValueError("a parcel that became shorter")
        start += copied

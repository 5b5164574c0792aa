"""Write one log file per part, rotated before it fills the disk."""

from __future__ import annotations

from pathlib import Path

MAX_BYTES = 5_000_000
KEPT = 3


class RotatingLog:
    """Write the bytes of one part to `folder/name.log`; older ones are in `name.log.1` … `name.log.3`."""

    def __init__(self, folder: Path, name: str, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = folder / f"{name}.log"
        self.max_bytes = max_bytes
        self._file = self.path.open("ab", buffering=0)

    def write(self, chunk: bytes) -> None:
        """Append the bytes. A full disk must not stop the parts, so what cannot be written is dropped."""
        try:
            if self._file.tell() + len(chunk) > self.max_bytes:
                self._turn_over()
            self._file.write(chunk)
        except OSError:
            return

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _turn_over(self) -> None:
        self._file.close()
        # Oldest first, so that no file overwrites one that has yet to be renamed.
        for number in range(KEPT - 1, 0, -1):
            older = self._numbered(number)
            if older.exists():
                older.rename(self._numbered(number + 1))
        if self.path.exists():
            self.path.rename(self._numbered(1))
        self._file = self.path.open("ab", buffering=0)

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

"""Capture a block of a program: `with capture(folder) as captured:`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from runners.capture.drafting import MOST_LINES, CaptureError, Written, chosen, drafts_of, write
from runners.capture.extraction import ExtractionError
from runners.capture.ranking import LEAST_SHARE, Row, ranked, table
from runners.capture.recording import Recorder


@dataclass
class Captured:
    """Hold what a program called, by falling share of its time, and the problems that were written."""

    program: str
    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0
    left_out: int = 0
    written: list[Written] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def table(self) -> str:
        """Return the ranking for people."""
        return table(self.rows, self.seconds)

    def write(self, folder: Path, top: int = 2, wanted: Sequence[str] = ()) -> list[Written]:
        """Write problems of the rows that matter, or of those that are named. Raises CaptureError."""
        self._check()
        for row in chosen(self.rows, top, wanted):
            if not wanted and len(self.written) >= top:
                break
            if not wanted and any(row.overlaps(one.row) for one in self.written):
                continue
            try:
                draft = drafts_of(row, self._name_for(row, folder), self.program)
                longest = max(len(code.lines) for code in draft.codes)
                if not wanted and longest > MOST_LINES:
                    raise ExtractionError(f"{longest} operations, rarely one kernel; name it with --select to try")
                self.written.append(write(row, draft, folder))
            except ExtractionError as error:
                self.refused.append(f"{row.title}: {error}")
                if wanted:
                    raise CaptureError(f"{row.title} cannot become a problem: {error}") from error
        if not self.written:
            reasons = "; ".join(self.refused) or self._why_none()
            raise CaptureError(f"nothing was written: {reasons}")
        return self.written

    def _check(self) -> None:
        if not self.rows:
            raise CaptureError(
                "the program called no function of torch that computes: is its work in another process or thread, "
                "under torch.compile, or behind a condition that was not met?"
            )

    def _why_none(self) -> str:
        """Return why no row was tried."""
        if any(row.share >= LEAST_SHARE for row in self.rows):
            return "none of the costly calls can become a problem; the table lists the reasons"
        return "no call takes as much as a hundredth of the time"

    def _name_for(self, row: Row, folder: Path) -> str:
        """Return a name for the problem that neither the folder nor an importable module has."""
        last = re.split(r"[.:]", row.title)[-1].strip("_")
        base = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", last).lower()
        base = re.sub(r"\W", "_", base) or "captured"
        # An exported package has this name, and must not hide a module of the standard library.
        base = f"{base}_kernel" if base in sys.stdlib_module_names or base == "torch" else base
        taken = {one.folder.name for one in self.written}
        names = (base if number == 1 else f"{base}_{number}" for number in range(1, 1000))
        return next(name for name in names if name not in taken)


@contextmanager
def capture(
    folder: str | Path | None = None, *, top: int = 2, select: Sequence[str] = (), keep_inputs: bool = False
) -> Iterator[Captured]:
    """Watch the block, and then write the `top` problems, or the selected ones, into the folder if one is given.

    Only the calls of this thread are watched. Raises CaptureError if nothing can be written.
    """
    captured = Captured(Path(sys.argv[0]).name or "a session")
    recorder = Recorder(keep=keep_inputs)
    recorder.start()
    try:
        yield captured
    finally:
        recorder.stop()
        captured.seconds, captured.left_out = recorder.seconds, recorder.left_out
        captured.rows = ranked(recorder.calls.values(), recorder.seconds)
    if folder is not None:
        captured.write(Path(folder), top, select)

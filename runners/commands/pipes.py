"""End a command quietly when the reader of its output has gone."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# As a shell reports a program that SIGPIPE has ended.
READER_GONE = 141


@contextmanager
def until_the_reader_leaves() -> Iterator[None]:
    """Exit with `READER_GONE` and without a traceback where what reads the output, such as `head`, has ended.

    Python ignores SIGPIPE and raises BrokenPipeError instead (docs.python.org, "Note on SIGPIPE").
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        if not _reader_has_gone():
            raise  # of a connection, or of a program that was started
        # Python writes what is left in the buffer when it exits, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(READER_GONE)


def _reader_has_gone() -> bool:
    """Return whether nothing reads the pipe to which standard output is written."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))

"""End a command quietly when the reader of its output has gone."""

from __future__ import annotations

import os
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
        # Python writes what is left in the buffer when it exits, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(READER_GONE)

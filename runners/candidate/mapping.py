"""Mapping an arena of the host's shared memory; the same for candidates and baselines."""

from __future__ import annotations

import mmap

POPULATED = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)


def mapped(descriptor: int) -> mmap.mmap:
    """The whole of it, with every page in place: addresses are fresh in each call, and whoever met their pages there
    for the first time would pay for that inside the timed region (a tenth of a small convolution)."""
    return mmap.mmap(descriptor, 0, flags=POPULATED)

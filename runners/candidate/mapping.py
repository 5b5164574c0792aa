"""Map an arena of the host's shared memory; the same for candidates and baselines."""

from __future__ import annotations

import mmap

# MAP_POPULATE exists on Linux only.
POPULATED = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)


def mapped(descriptor: int) -> mmap.mmap:
    """Map the whole arena, with every page in place.

    Addresses are fresh in each call. A page fault inside the timed region would be charged to the call (a tenth of a
    small convolution).
    """
    return mmap.mmap(descriptor, 0, flags=POPULATED)

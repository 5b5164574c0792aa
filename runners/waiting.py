"""Wait for a descriptor.

`select.select` refuses numbers from 1024 on, which a long-lived process reaches.
"""

from __future__ import annotations

import math
import select


def readable(descriptor: int, timeout_s: float) -> bool:
    """Wait until a descriptor can be read or its far end is gone; return whether that was so in time."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(math.ceil(max(0.0, timeout_s) * 1e3)))

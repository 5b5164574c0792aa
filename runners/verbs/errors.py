"""Define what a verb answers where it does nothing."""

from __future__ import annotations


class RefusedError(ValueError):
    """Nothing was done; the message says why, and what to do instead."""

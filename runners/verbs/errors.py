"""Define what a verb answers where it does nothing."""

from __future__ import annotations


class RefusedError(ValueError):
    """Report that nothing was done. The message says why, and what to do instead."""

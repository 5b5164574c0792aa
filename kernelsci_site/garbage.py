"""Python's garbage collector in a process that serves."""

from __future__ import annotations

import gc

from django.urls import get_resolver


def leave_the_loaded_alone() -> None:
    """From here on the collector passes over everything that was loaded so far: modules, models, addresses. They stay
    as long as the process does, and to look through them takes a tenth of a second in the middle of some request."""
    _ = get_resolver().url_patterns  # the views: otherwise loaded at the first request
    gc.collect()
    gc.freeze()

"""Tune Python's garbage collector in a serving process."""

from __future__ import annotations

import gc

from django.urls import get_resolver


def freeze_loaded_objects() -> None:
    """Exclude everything loaded so far from garbage collection.

    Modules, models and URL patterns live as long as the process, and scanning them takes a tenth of a second in the
    middle of some request.
    """
    _ = get_resolver().url_patterns  # the views: otherwise loaded at the first request
    # Collect first, so that no garbage is frozen with the rest.
    gc.collect()
    gc.freeze()

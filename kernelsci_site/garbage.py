"""Tune Python's garbage collector in a serving process."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Mapping
from typing import Any

from django.urls import get_resolver

# How often the survivors of a full collection are frozen, and how far apart: pages that are visited for the first time
# compile their templates and load their charts, hardly any after some thousand requests.
MOST_FREEZES, APART_S = 20, 30.0
_OLDEST = 2


def freeze_loaded_objects() -> None:
    """Exclude everything loaded so far from garbage collection, and later what pages load at their first visits.

    Modules, models, URL patterns and compiled templates live as long as the process, and scanning them takes a tenth of
    a second in the middle of some request.
    """
    _ = get_resolver().url_patterns  # the views: otherwise loaded at the first request
    # Collect first, so that no garbage is frozen with the rest.
    gc.collect()
    gc.freeze()
    gc.callbacks.append(FreezeSurvivors())


class FreezeSurvivors:
    """Freeze what has survived a full collection, `MOST_FREEZES` times.

    Objects of requests in progress are frozen too. Reference counting still frees them; only reference cycles among
    them leak, and MOST_FREEZES bounds that leak. Nothing happens on Pythons whose automatic collections are never full.
    """

    def __init__(self) -> None:
        self._left, self._last_s = MOST_FREEZES, -math.inf

    def __call__(self, phase: str, info: Mapping[str, Any]) -> None:
        """Act on the end of a full collection; Python calls this at the start and end of every collection."""
        if phase != "stop" or info["generation"] != _OLDEST or not self._left:
            return
        if (now_s := time.monotonic()) - self._last_s >= APART_S:
            self._left, self._last_s = self._left - 1, now_s
            gc.freeze()

"""Search the shipped pages on hardware and techniques, where the site's package lies beside this one.

The pages belong to `optimizer/`, which this package does not import: a machine that only measures has no copy of it.
So the library is loaded by name, as the queue of jobs is, and its absence is an answer.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from runners.verbs.errors import RefusedError

LIBRARY = "optimizer.knowledge"
MAX_PAGES = 10


def search_knowledge(query: str, target: str, limit: int) -> list[dict[str, Any]]:
    """Return the pages that fit best: title, targets, and text with a tested snippet. Raises RefusedError."""
    found = _library().search_knowledge(query, target, max(1, min(limit, MAX_PAGES)))
    return [{"title": page.title, "targets": list(page.targets), "text": page.markdown} for page in found]


def _library() -> ModuleType:
    try:
        return importlib.import_module(LIBRARY)
    except ModuleNotFoundError as error:
        # A fault inside the library is a bug, and must not be reported as its absence.
        if error.name is None or not LIBRARY.startswith(error.name):
            raise
        raise RefusedError("The knowledge pages are not installed on this machine.") from error

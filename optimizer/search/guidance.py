"""Describe what people tell the agents of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class GuidanceView:
    """Describe an instruction from a person to the agents.

    `ref` identifies it in a prompt's context report. With `lineage` it applies to prompts about one of those kernels
    (keys); None means the whole run.
    """

    ref: str
    text: str
    author: str = ""
    lineage: frozenset[str] | None = None

    def holds_for(self, keys: Iterable[str]) -> bool:
        """Return whether the instruction belongs into a prompt about these kernels."""
        return self.lineage is None or not self.lineage.isdisjoint(keys)

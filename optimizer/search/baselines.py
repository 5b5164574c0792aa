"""Implement the baselines of STARK's evaluation (arXiv 2510.16996, section 5).

Both use one agent at temperature 0.7 with the same budget.
"""

from __future__ import annotations

import random
from typing import Literal

from optimizer.search.attempts import Attempt, AttemptStrategy, SoloSettings, solo_draft
from optimizer.search.base import Draft, KernelView, StrategySettings
from optimizer.search.flow import Flow
from optimizer.search.tree import Node, Tree


class SoloStrategy(AttemptStrategy):
    """Let one agent write every kernel alone."""

    Settings = SoloSettings
    roles = ("solo",)

    def opening_role(self, node: KernelView, settings: StrategySettings) -> str:
        """Return the only agent's role."""
        return "solo"

    def window(self, tree: Tree, key: str, role: str, rng: random.Random) -> list[Node]:
        """Return the kernel to revise and the reference. Windows over the tree and the leaderboard are part of STARK
        only.
        """
        # Without repetition: the kernel to revise may be the reference itself.
        return [tree.by_key[name] for name in dict.fromkeys((key, tree.root.key))]

    def write(self, flow: Flow, attempt: Attempt) -> Draft | None:
        """Write one kernel with one call."""
        return solo_draft(flow, attempt, flow.history.settings.narrow(SoloSettings).temperature)


class Sampling(SoloStrategy):
    """Take the best of B independent samples from one kernel: the reference, or the best given one on a warm start."""

    name = "sampling"
    title = "Sampling"
    summary = "Best of B: every kernel is written from the one that the run starts with."

    def chooser_for(self, settings: StrategySettings) -> Literal["tree", "root", "last"]:
        """Return the root in every case."""
        return "root"


class Reflexion(SoloStrategy):
    """Let every attempt revise the one before it."""

    name = "reflexion"
    title = "Reflexion"
    summary = "Every attempt revises the one before it, whatever came of it."

    def chooser_for(self, settings: StrategySettings) -> Literal["tree", "root", "last"]:
        """Return the last attempt in every case."""
        return "last"

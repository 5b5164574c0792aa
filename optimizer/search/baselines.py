"""The baselines of STARK's evaluation (arXiv 2510.16996, section 5): one agent, temperature 0.7, the same budget."""

from __future__ import annotations

import random
from typing import Literal

from optimizer.search.attempts import Attempt, AttemptStrategy, SoloSettings, solo_draft
from optimizer.search.base import Draft, KernelView, StrategySettings
from optimizer.search.flow import Flow
from optimizer.search.tree import Node, Tree


class SoloStrategy(AttemptStrategy):
    """One agent writes every kernel alone."""

    Settings = SoloSettings
    roles = ("solo",)

    def opening_role(self, node: KernelView, settings: StrategySettings) -> str:
        """Always the only agent."""
        return "solo"

    def window(self, tree: Tree, key: str, role: str, rng: random.Random) -> list[Node]:
        """The reference and the kernel to revise; windows over the tree and the leaderboard are STARK's own."""
        return [tree.by_key[name] for name in dict.fromkeys((key, tree.root.key))]

    def write(self, flow: Flow, attempt: Attempt) -> Draft | None:
        """One call, one kernel."""
        return solo_draft(flow, attempt, flow.history.settings.narrow(SoloSettings).temperature)


class Sampling(SoloStrategy):
    """Best of B independent samples from the reference."""

    name = "sampling"
    title = "Sampling"
    summary = "Best of B: every kernel is written from the reference alone."

    def chooser_for(self, settings: StrategySettings) -> Literal["tree", "root", "last"]:
        """Always the root."""
        return "root"


class Reflexion(SoloStrategy):
    """Always revise the last attempt."""

    name = "reflexion"
    title = "Reflexion"
    summary = "Every attempt revises the one before it, whatever came of it."

    def chooser_for(self, settings: StrategySettings) -> Literal["tree", "root", "last"]:
        """Always the last attempt."""
        return "last"

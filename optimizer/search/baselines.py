"""Implement the baselines of STARK's evaluation (arXiv 2510.16996, section 5).

Both use one agent at temperature 0.7 with the same budget.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from optimizer.search.attempts import Attempt, AttemptStrategy, SoloSettings, being_written, solo_draft
from optimizer.search.base import Draft, History, KernelView, Stage, StrategySettings
from optimizer.search.flow import Flow
from optimizer.search.tree import Node, Tree

# Reflections that fit a prompt (Shinn et al. 2023 keep one to three).
MEMORY = 3


class SoloStrategy(AttemptStrategy):
    """Let one agent write every kernel alone."""

    Settings = SoloSettings
    roles: ClassVar[tuple[str, ...]] = ("solo",)
    stages: ClassVar[tuple[Stage, ...]] = (Stage("Write", ("solo",)),)

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
        return solo_draft(flow, attempt, attempt_temperature(flow))


class Sampling(SoloStrategy):
    """Take the best of B independent samples from one kernel: the reference, or the best given one on a warm start."""

    name = "sampling"
    title = "Sampling"
    summary = "Best of B: every kernel is written from the one that the run starts with."

    def chooser_for(self, settings: StrategySettings) -> Literal["tree", "root", "last"]:
        """Return the root in every case."""
        return "root"


class ReflexionSettings(SoloSettings):
    """Define how much of its experience the agent is shown."""

    memory: int = Field(MEMORY, ge=1, le=20, description="Newest reflections that the next attempt is shown.")


class Reflexion(SoloStrategy):
    """Let every attempt revise the one before it, and reflect on its outcome in words first.

    The reflections are the agent's memory (Shinn et al. 2023, arXiv 2303.11366): the newest ones are part of the next
    attempt's prompt. A reflection is a question of its own and no attempt.
    """

    name = "reflexion"
    title = "Reflexion"
    summary = "Every attempt revises the one before it, after a reflection on its result."
    Settings = ReflexionSettings
    roles = ("solo", "reflect")
    stages = (Stage("Reflect", ("reflect",)), Stage("Write", ("solo",)))

    def chooser_for(self, settings: StrategySettings) -> Literal["tree", "root", "last"]:
        """Return the last attempt in every case."""
        return "last"

    def open(self, history: History, number: int) -> Attempt:
        """Open the attempt with the reflections on those before it."""
        memory = history.settings.narrow(ReflexionSettings).memory
        made = [f"a{n}.reflect" for n in range(1, number)]
        remembered = [key for key in made if key in history.calls and history.calls[key].answer is not None]
        attempt = super().open(history, number)
        return replace(attempt, extra={"reflections": remembered[-memory:]})

    def conclude(self, flow: Flow, attempt: Attempt, kernel: KernelView) -> None:
        """Ask for the reflection on an attempt that has its outcome. Raises Waiting."""
        # Nothing is revised after the last attempt, and attempts that are being written take what is left first.
        if flow.can_spare(being_written(flow.history)) or f"{attempt.key}.reflect" in flow.history.calls:
            context = {"node": kernel.key, "window": [kernel.key, attempt.node.key]}
            flow.ask(f"{attempt.key}.reflect", "reflect", "FreeAnswer", context, attempt_temperature(flow))


def attempt_temperature(flow: Flow) -> float:
    """Return the temperature of the only agent."""
    return flow.history.settings.narrow(SoloSettings).temperature

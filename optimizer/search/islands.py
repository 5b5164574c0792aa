"""Implement MAP-Elites (Mouret & Clune 2015) on four islands with ring migration.

Every island keeps the fastest kernel of each cell of the behaviour descriptor. Parents come from the Pareto front
over the cases, so that a specialist for one shape survives a generalist that is faster on average. A cost-aware
bandit chooses the writing model when the run offers several. The archive is replayed from the kernels in their order
and needs no storage of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from optimizer.search.attempts import Attempt, SoloSettings, is_attempt
from optimizer.search.base import History, KernelView, StrategySettings, fastest, is_ahead
from optimizer.search.baselines import SoloStrategy
from optimizer.search.machinery.bandit import DECAY, Pull, choose_model
from optimizer.search.machinery.crossover import complement, pareto_front
from optimizer.search.machinery.descriptor import Cell, descriptor
from optimizer.search.machinery.seeds import seeds
from optimizer.search.machinery.winners import tuned_winners

ISLANDS = 4
# Attempts between two migrations.
MIGRATION = 12


class IslandsSettings(SoloSettings):
    """Define the settings of the archive and of the bandit."""

    islands: int = Field(ISLANDS, ge=1, le=32, description="Islands that evolve apart.")
    migration: int = Field(MIGRATION, ge=1, description="Attempts between two migrations to the next island.")
    inspirations: int = Field(2, ge=0, le=5, description="Other elites shown beside the parent.")
    models: list[str] = Field(
        default_factory=list, description="Models the bandit chooses from; empty: the role's."
    )
    decay: float = Field(DECAY, gt=0, le=1, description="How fast the bandit forgets, per call.")


@dataclass
class Archive:
    """Hold the elites of every island by cell. `migrations` counts the elites that a neighbour took over."""

    islands: list[dict[Cell, KernelView]]
    migrations: int = 0

    def add(self, island: int, kernel: KernelView) -> bool:
        """Keep a correct kernel if its cell is empty or slower. Return True when it was kept."""
        if not kernel.correct or kernel.time_us is None:
            return False
        cells = self.islands[island]
        holder = cells.get(descriptor(kernel))
        if holder is not None and not is_ahead(kernel, holder):
            return False
        cells[descriptor(kernel)] = kernel
        return True

    def migrate(self) -> None:
        """Offer the fastest elite of every island to the next island of the ring, all at once."""
        # Collect all emigrants first: otherwise one elite could travel around the whole ring in a single migration.
        emigrants = [fastest(cells.values()) for cells in self.islands]
        for island, kernel in enumerate(emigrants):
            if kernel is not None:
                self.migrations += self.add((island + 1) % len(self.islands), kernel)


def replay_archive(history: History, settings: IslandsSettings) -> Archive:
    """Rebuild the archive after all finished attempts.

    Seeds and people's kernels are on every island; attempts, and what tuning made of them, on the island of their call.
    """
    archive = Archive([{} for _ in range(settings.islands)])
    tuned = tuned_winners(history)
    for island in range(settings.islands):
        for kernel in _given(history, settings):
            archive.add(island, kernel)
    block = 0
    for number, kernel in _attempts(history):
        if (number - 1) // settings.migration > block:
            # Migrations happen between blocks of attempts, at the same points of every replay.
            block = (number - 1) // settings.migration
            archive.migrate()
        for elite in (kernel, tuned.get(kernel.key)):
            if elite is not None:
                archive.add(island_of(number, settings), elite)
    return archive


def _given(history: History, settings: IslandsSettings) -> list[KernelView]:
    """Return the kernels with which every island begins; without a warm start the seeds alone."""
    return [kernel for kernel in history.kernels if kernel.is_given] if settings.warm_start else seeds(history)


def island_of(number: int, settings: IslandsSettings) -> int:
    """Return the island of an attempt; attempts visit the islands in turn."""
    return (number - 1) % settings.islands


class Islands(SoloStrategy):
    """Search with MAP-Elites on islands."""

    name = "islands"
    title = "Islands"
    summary = "Keep the fastest kernel of each kind on four islands; derive new ones from those that win a shape."
    Settings = IslandsSettings

    def chooser_for(self, settings: StrategySettings) -> Literal["tree", "root", "last"]:
        """Return the root, which is used on an island where no seed is correct."""
        return "root"

    def open(self, history: History, number: int) -> Attempt:
        """Choose a parent from the island's Pareto front, and other elites as inspiration."""
        settings = history.settings.narrow(IslandsSettings)
        island = island_of(number, settings)
        elites = list(replay_archive(history, settings).islands[island].values())
        rng = history.rng(f"a{number}.open")
        # No seed is correct on this island, so start from the reference.
        if not elites:
            return super().open(history, number)
        # The front is empty where no elite has times by case.
        parent = rng.choice(pareto_front(elites) or elites)
        # The parent is shown anyway.
        others = [kernel for kernel in elites if kernel.key != parent.key]
        shown = rng.sample(others, min(len(others), settings.inspirations))
        partner = complement(parent, others)
        window = dict.fromkeys([parent.key, *([partner.key] if partner else []), *(k.key for k in shown)])
        return Attempt(number, parent, "solo", tuple(window), self._extra(history, settings, island, partner))

    def _extra(
        self, history: History, settings: IslandsSettings, island: int, partner: KernelView | None
    ) -> Mapping[str, object]:
        extra: dict[str, object] = {"island": island}
        if partner is not None:
            extra["crossover"] = partner.key
        if settings.models:
            extra["model"] = choose_model(settings.models, list(_pulls(history)), decay=settings.decay)
        return extra


def _attempts(history: History) -> Iterable[tuple[int, KernelView]]:
    numbered = [(int(k.key[1:]), k) for k in history.kernels if is_attempt(k.key) and k.finished]
    return sorted(numbered, key=lambda pair: pair[0])


def _pulls(history: History) -> Iterable[Pull]:
    """Yield the reward of each finished call: the share of the parent's time that its kernel saved."""
    for key, call in history.calls.items():
        attempt = key.partition(".")[0]
        if is_attempt(attempt) and call.finished:
            yield Pull(call.context.get("model") or call.model, _saved(history, attempt), call.cost_usd)


def _saved(history: History, attempt: str) -> float:
    kernel = history.kernel(attempt)
    parent = history.kernel(kernel.parent_keys[0]) if kernel and kernel.parent_keys else None
    if kernel is None or parent is None or not kernel.time_us or not parent.time_us:
        return 0.0
    return max(0.0, 1 - kernel.time_us / parent.time_us)

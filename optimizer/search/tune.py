"""Implement the strategy `tune`: search the tunables that a kernel declares, without a language model.

The kernel's `@tune`, `@constraint` and `@flags` lines define the space. The first draft is the declared default;
after that a sampler proposes, given every outcome so far. No configuration is tried twice, and a failure is an
observation like any other. The run ends when the space is exhausted.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from optimizer.search.base import Finish, History, KernelView, Step, Strategy, StrategySettings
from optimizer.search.machinery.tuning import Search, is_numbered, size_of
from optimizer.search.samplers import DEFAULT, SAMPLERS

PREFIX = "tune."


class TuneSettings(StrategySettings):
    """Define the settings of `tune`.

    `kernel` is the key of the kernel to tune. Without it, the correct seed with the largest space is taken, and of
    equals the faster one.
    """

    kernel: str = Field("", description="Key of the kernel to tune; empty: the most promising seed.")
    sampler: str = Field(DEFAULT, pattern=f"^({'|'.join(SAMPLERS)})$", description="Who proposes configurations.")


class Tune(Strategy):
    """Propose configurations of one kernel."""

    name: ClassVar[str] = "tune"
    title: ClassVar[str] = "Tune parameters"
    summary: ClassVar[str] = "Searches the tunables a kernel declares. Needs no language model."
    Settings: ClassVar[type[StrategySettings]] = TuneSettings
    needs_model: ClassVar[bool] = False
    default_evaluations: ClassVar[int] = 40

    def decide(self, history: History) -> list[Step]:
        """Return drafts for the free slots, or the end of the run."""
        settings = history.settings.narrow(TuneSettings)
        basis = choose_basis(history, settings.kernel)
        if basis is None:
            return [Finish("No kernel with tunables is correct here.")]
        search = Search(history, basis, PREFIX)
        drafts = search.drafts(settings.concurrency, settings.sampler)
        if drafts or search.pending:
            return list(drafts)
        return [Finish(f"All {len(search.tried)} configurations were measured.")]


def choose_basis(history: History, key: str) -> KernelView | None:
    """Return the kernel to tune: the requested one or the most promising seed, or None when none works."""
    candidates = [kernel for kernel in history.kernels if kernel.correct and not is_numbered(kernel.key, PREFIX)]
    candidates = [kernel for kernel in candidates if (kernel.key == key if key else kernel.counts)]
    tunable = [(size_of(kernel.source), kernel) for kernel in candidates]
    # A space with a single configuration has nothing to search.
    promising = [(size, kernel) for size, kernel in tunable if size > 1]
    best = min(promising, key=lambda pair: (-pair[0], pair[1].ranking_us, pair[1].number), default=None)
    return best[1] if best else None

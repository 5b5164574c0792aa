"""Implement the strategy `tune`: search the tunables that a kernel declares, without a language model.

The kernel's `@tune`, `@constraint` and `@flags` lines define the space. The first draft is the declared default;
after that a sampler proposes, given every outcome so far. No configuration is tried twice, and a failure is an
observation like any other. The run ends when the space is exhausted.

Where kernels for the target can be compiled on another machine, the sampler's best few dozen are compiled while one
is being measured. The sampler then sees their machine code, and what does not build costs no evaluation.

Where earlier runs measured the same parameters on another target or in another version of the problem, the sampler
starts from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from optimizer.search.base import Finish, History, KernelView, Step, Strategy, StrategySettings
from optimizer.search.compiled import Upcoming
from optimizer.search.machinery.related import related_tasks, words_of
from optimizer.search.machinery.tuning import Search, is_numbered, size_of, space_of
from optimizer.search.samplers import DEFAULT, SAMPLERS
from runners.job import Source

PREFIX = "tune."


class TuneSettings(StrategySettings):
    """Define the settings of `tune`.

    `kernel` is the key of the kernel to tune. Without it, the correct seed with the largest space is taken, and of
    equals the faster one.
    """

    kernel: str = Field("", description="Key of the kernel to tune; empty: the most promising seed.")
    ahead: int = Field(
        24,
        ge=0,
        le=64,
        description="Configurations compiled ahead for each one that is measured, where kernels for the target can be "
        "compiled without it; 0: none.",
    )
    transfer: bool = Field(
        True,
        description="Start from what earlier runs measured of the same problem and parameters on other targets or in "
        "other versions.",
    )
    sampler: str = Field(DEFAULT, pattern=f"^({'|'.join(SAMPLERS)})$", description="Who proposes configurations.")


class Tune(Strategy):
    """Propose configurations of one kernel."""

    name: ClassVar[str] = "tune"
    title: ClassVar[str] = "Tune parameters"
    summary: ClassVar[str] = "Searches the tunables a kernel declares. Needs no language model."
    Settings: ClassVar[type[StrategySettings]] = TuneSettings
    needs_model: ClassVar[bool] = False
    uses_earlier: ClassVar[bool] = True
    default_evaluations: ClassVar[int] = 40

    def decide(self, history: History) -> list[Step]:
        """Return drafts for the free slots, or the end of the run."""
        settings = history.settings.narrow(TuneSettings)
        basis = choose_basis(history, settings.kernel)
        if basis is None:
            return [Finish(_why_no_basis(history))]
        search = Search(history, basis, PREFIX, transfer=settings.transfer)
        drafts = search.drafts(settings.concurrency, settings.sampler, settings.ahead)
        batch = search.batch(settings.ahead, settings.sampler)
        if drafts or batch or search.pending or search.is_compiling:
            return [*drafts, *([batch] if batch else [])]
        return [Finish(_ending(search))]

    def preview(self, history: History, most: int) -> list[Upcoming]:
        """Return the sampler's next configurations, as if each was measured at its expected time."""
        settings = history.settings.narrow(TuneSettings)
        basis = choose_basis(history, settings.kernel)
        if basis is None:
            return []
        search = Search(history, basis, PREFIX, transfer=settings.transfer)
        return search.upcoming(most, settings.sampler, settings.ahead)

    def obstacle(self, seeds: Sequence[Source]) -> str:
        """Say so where none of the kernels declares tunables: then the run measures them and ends."""
        if any(size_of(seed) > 1 for seed in seeds):
            return ""
        return "No starting kernel declares tunables: this strategy would only measure the reference, then end."

    def starts_from(self, history: History) -> str:
        """Name the measurements of the same parameters on other targets and in other versions."""
        settings = history.settings.narrow(TuneSettings)
        is_used = settings.transfer and SAMPLERS[settings.sampler].uses_related
        basis = choose_basis(history, settings.kernel) if is_used else None
        return (
            words_of(related_tasks(history.earlier, space_of(basis.source), basis.source.language)) if basis else ""
        )


def _ending(search: Search) -> str:
    refused = len(search.compiled.refused)
    ruled_out = f" {refused} more were ruled out by the compiler." if refused else ""
    return f"All {len(search.tried)} configurations were measured.{ruled_out}"


def _why_no_basis(history: History) -> str:
    tunable = [kernel for kernel in history.kernels if size_of(kernel.source) > 1]
    if not tunable:
        return "No kernel declares tunables: there is nothing to vary."
    if any(kernel.correct and not kernel.counts for kernel in tunable):
        return "The time of the kernel with tunables was not confirmed."
    return "No kernel with tunables is correct here."


def choose_basis(history: History, key: str) -> KernelView | None:
    """Return the kernel to tune: the requested one or the most promising seed, or None when none works."""
    candidates = [kernel for kernel in history.kernels if kernel.correct and not is_numbered(kernel.key, PREFIX)]
    candidates = [kernel for kernel in candidates if (kernel.key == key if key else kernel.counts)]
    tunable = [(size_of(kernel.source), kernel) for kernel in candidates]
    # A space with a single configuration has nothing to search.
    promising = [(size, kernel) for size, kernel in tunable if size > 1]
    best = min(promising, key=lambda pair: (-pair[0], pair[1].ranking_us, pair[1].number), default=None)
    return best[1] if best else None

"""Strategy `tune`: search the tunables that a kernel declares, without a language model.

The space is what the kernel's `@tune`, `@constraint` and `@flags` lines say. The first draft is the declared default;
after that a sampler proposes, seeing every outcome so far. No configuration is tried twice, and one that fails is an
observation like any other. When the space is exhausted the run is over.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from optimizer.search.base import Draft, Finish, History, KernelView, Step, Strategy, StrategySettings
from optimizer.search.samplers import DEFAULT, SAMPLERS, Trial
from optimizer.search.space import FLAGS, Config, Space
from runners.job import Source, TunableValue
from runners.tunables import TunablesError, parse


class TuneSettings(StrategySettings):
    """`kernel` is the key of the kernel to tune; without it, the correct seed with the largest space is taken, the
    faster one of equals."""

    kernel: str = Field("", description="Key of the kernel to tune; empty: the most promising seed.")
    sampler: str = Field(DEFAULT, pattern=f"^({'|'.join(SAMPLERS)})$", description="Who proposes configurations.")


class Tune(Strategy):
    """Proposes configurations of one kernel."""

    name: ClassVar[str] = "tune"
    title: ClassVar[str] = "Tune parameters"
    summary: ClassVar[str] = "Searches the tunables a kernel declares. Needs no language model."
    Settings: ClassVar[type[StrategySettings]] = TuneSettings
    needs_model: ClassVar[bool] = False
    default_evaluations: ClassVar[int] = 40

    def decide(self, history: History) -> list[Step]:
        """Drafts for the free slots, or the end."""
        settings = history.settings.narrow(TuneSettings)
        basis = choose_basis(history, settings.kernel)
        if basis is None:
            return [Finish("No kernel with tunables is correct here.")]
        search = Search(history, basis)
        drafts = search.drafts(settings.concurrency, settings.sampler)
        if drafts or search.pending:
            return list(drafts)
        return [Finish(f"All {len(search.tried)} configurations were measured.")]


class Search:
    """One kernel's space and what is known of it."""

    def __init__(self, history: History, basis: KernelView) -> None:
        self.history = history
        self.basis = basis
        self.space = space_of(basis.source)
        self.mine = [kernel for kernel in history.kernels if kernel.key.startswith(PREFIX)]
        self.pending = [kernel for kernel in self.mine if not kernel.finished]
        self.tried = [config_of(self.space, kernel.source) for kernel in self.mine]

    def drafts(self, concurrency: int, sampler: str) -> list[Draft]:
        """One draft for every free slot, as long as there is something untried."""
        free = concurrency - len(self.pending)
        if self.history.evaluations_left is not None:
            free = min(free, self.history.evaluations_left)
        if free <= 0:
            return []
        return [self._draft(len(self.mine) + i, config) for i, config in enumerate(self._propose(free, sampler))]

    def _propose(self, count: int, sampler: str) -> list[Config]:
        """The declared default first, then what the sampler asks for; the same for the same seed and history."""
        rng = np.random.default_rng(self.history.rng(f"{PREFIX}{len(self.mine)}").getrandbits(64))
        return SAMPLERS[sampler](self.space, [self.space.defaults()]).ask(self._trials(), count, rng)

    def _trials(self) -> list[Trial]:
        return [
            Trial(config, kernel.time_us if kernel.correct else None, pending=not kernel.finished)
            for config, kernel in zip(self.tried, self.mine, strict=True)
        ]

    def _draft(self, number: int, config: Config) -> Draft:
        tunables = {name: value for name, value in config.items() if name != FLAGS}
        flags = tuple(str(config[FLAGS]).split()) if FLAGS in config else self.basis.source.flags
        source = Source(self.basis.source.language, self.basis.source.text, tunables, flags)
        return Draft(
            key=f"{PREFIX}{number}",
            source=source,
            parent_keys=(self.basis.key,),
            author_kind="tuner",
            title=", ".join(f"{name}={value}" for name, value in self._changed(config).items())
            or "declared defaults",
        )

    def _changed(self, config: Config) -> dict[str, TunableValue]:
        """What differs from the defaults: what a reader wants to see."""
        defaults = self.space.defaults()
        return {name.removeprefix("@"): value for name, value in config.items() if value != defaults[name]}


PREFIX = "tune."


def choose_basis(history: History, key: str) -> KernelView | None:
    """The kernel to tune: the one asked for, or the most promising seed. None when there is none that works."""
    candidates = [kernel for kernel in history.kernels if not kernel.key.startswith(PREFIX) and kernel.correct]
    if key:
        candidates = [kernel for kernel in candidates if kernel.key == key]
    tunable = [(size_of(kernel.source), kernel) for kernel in candidates]
    promising = [(size, kernel) for size, kernel in tunable if size > 1]
    best = min(promising, key=lambda pair: (-pair[0], pair[1].time_us or 0.0, pair[1].number), default=None)
    return best[1] if best else None


def size_of(source: Source) -> int:
    """How many combinations the text declares; 0 where it declares none or cannot be read."""
    try:
        return parse(source.text).size
    except TunablesError:
        return 0


def space_of(source: Source) -> Space:
    """The space of a kernel's declarations. Raises TunablesError and SpaceError."""
    return Space.declared(parse(source.text))


def config_of(space: Space, source: Source) -> Config:
    """The configuration a kernel was built with; what it does not name is at its default."""
    config = {**space.defaults(), **source.tunables}
    return config | {FLAGS: " ".join(source.flags)} if FLAGS in space.names else config

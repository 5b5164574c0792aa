"""Choose which configurations to compile ahead of their measurement, and then which of the compiled ones to measure.

The sampler's best few dozen are compiled while a kernel is being measured. Only what compiled is suggested, so that a
build that fails, or exceeds a limit of the device, costs no evaluation; the model of failures learns from it all the
same. Half of a batch is drawn evenly from the whole space, so that code that no model expects is looked at too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.search.compiled import CompiledBatch
from optimizer.search.samplers import SAMPLERS, Trial
from optimizer.search.samplers.base import RelatedTask
from optimizer.search.samplers.candidates import draw_balanced, rows_of, untried
from optimizer.search.space import FLAGS, Config, Key, Rows, Space, rows_among
from runners.job import AheadBuild, Variant

COUNT = 24  # configurations of a batch


@dataclass(frozen=True)
class Compiled:
    """Hold the builds of a space's configurations by key, and the keys that are being compiled."""

    space: Space
    builds: Mapping[Key, AheadBuild]
    asked: frozenset[Key] = frozenset()

    @classmethod
    def of(cls, space: Space, batches: Iterable[CompiledBatch]) -> Compiled:
        """Return what the batches have told of the space's configurations."""
        builds: dict[Key, AheadBuild] = {}
        asked: set[Key] = set()
        for batch in batches:
            keys = [key_of(space, variant) for variant in batch.variants]
            if batch.builds or not batch.finished:
                asked.update(key for key in keys if key is not None)
            pairs = zip(keys, batch.builds, strict=False)
            builds |= {key: build for key, build in pairs if key is not None}
        return cls(space, builds, frozenset(asked))

    @property
    def features(self) -> dict[Key, dict[str, float]]:
        """Return the static features of the configurations whose machine code was read."""
        return {key: build.figures for key, build in self.builds.items() if build.figures and not build.refused}

    @property
    def refused(self) -> list[Trial]:
        """Return the configurations that cannot run, as trials that cost nothing."""
        names = self.space.names
        return [
            Trial(dict(zip(names, key, strict=True)), ruled_out=True)
            for key, build in self.builds.items()
            if build.refused
        ]

    def seen(self, trials: Sequence[Trial]) -> list[Trial]:
        """Return the trials, and after them the configurations that the compiler ruled out."""
        return [*trials, *self.refused]

    def ready(self, trials: Sequence[Trial]) -> list[Key]:
        """Return the configurations that compiled and that no trial has taken yet."""
        taken = {self.space.key(trial.config) for trial in _of_space(self.space, trials)}
        return [key for key, build in self.builds.items() if not build.refused and key not in taken]


def propose(
    sampler: str,
    compiled: Compiled,
    trials: Sequence[Trial],
    count: int,
    rng: np.random.Generator,
    related: Sequence[RelatedTask] = (),
    guesses: Sequence[Config] = (),
) -> list[Config]:
    """Return up to `count` configurations to measure next, all of which compiled: the guesses first."""
    ready = compiled.space.among(_rows(compiled.space, compiled.ready(trials)))
    sampling = SAMPLERS[sampler](ready, guesses, features=compiled.features, related=related)
    return sampling.ask(compiled.seen(trials), count, rng)


def shortlist(
    sampler: str,
    compiled: Compiled,
    trials: Sequence[Trial],
    count: int,
    rng: np.random.Generator,
    related: Sequence[RelatedTask] = (),
    guesses: Sequence[Config] = (),
) -> list[Config]:
    """Return up to `count` configurations to compile next.

    Half of them are even, half of them the guesses and the sampler's best.
    """
    space = compiled.space
    taken = np.vstack([rows_of(space, _of_space(space, trials)), _rows(space, compiled.asked)])
    free = untried(space, taken)
    even = draw_balanced(free, taken, count - count // 2, rng)
    rest = space.among(free[~rows_among(free, even)])
    sampling = SAMPLERS[sampler](rest, guesses, features=compiled.features, related=related)
    best = sampling.ask(compiled.seen(trials), count // 2, rng)
    return [*(space.config(row) for row in even), *best]


def _of_space(space: Space, trials: Sequence[Trial]) -> list[Trial]:
    return [trial for trial in trials if space.row(trial.config) is not None]


def _rows(space: Space, keys: Collection[Key]) -> Rows:
    """Return the positions of configurations, shape (keys, parameters)."""
    rows = [space.row(dict(zip(space.names, key, strict=True))) for key in keys]
    return np.array(rows, dtype=np.int32).reshape(len(keys), len(space.names))


def key_of(space: Space, variant: Variant) -> Key | None:
    """Return the key of the configuration that a variant builds; None where the space has changed since."""
    config: Config = {**space.defaults(), **variant.tunables}
    if FLAGS in space.names:
        config[FLAGS] = " ".join(variant.flags)
    return space.key(config) if space.row(config) is not None else None

"""Define the interface of a sampler: a pure function from the trials so far to the next configurations.

There is no `tell`: every question brings the whole history. The same history and random generator give the same
suggestions after a crash, in another process or in a replay. No configuration is suggested twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optimizer.search.space import Config, Key, Space
from runners.job import TunableValue


@dataclass(frozen=True)
class Trial:
    """Describe a configuration that was suggested.

    `time_us` is None while the trial is `pending`, and permanently when it failed (did not build, was wrong,
    crashed). Otherwise it is above 0, and smaller is better. `ruled_out` marks a failure that cost no evaluation: the
    compiler refused the configuration ahead.
    """

    config: Mapping[str, TunableValue]
    time_us: float | None = None
    pending: bool = False
    ruled_out: bool = False

    def __post_init__(self) -> None:
        if self.time_us is not None and not 0 < self.time_us < float("inf"):
            raise ValueError(f"a time of {self.time_us} µs; a failure has None")

    @property
    def measured(self) -> bool:
        """Return whether the configuration was correct and timed."""
        return self.time_us is not None and not self.pending

    @property
    def failed(self) -> bool:
        """Return whether the trial ended without a time."""
        return self.time_us is None and not self.pending


FEWEST_RELATED = 8  # measured configurations without which a related task teaches nothing


@dataclass(frozen=True)
class RelatedTask:
    """Hold trials of the same parameters on another target or of another size. Its times are not comparable.

    `title` says where they are from.
    """

    title: str
    trials: tuple[Trial, ...]


class Sampler(ABC):
    """Search a tuning space.

    `first_guesses`, such as a kernel's defaults or what was fast for another one, are suggested before anything else,
    best guess first. Guesses outside the space are skipped. `features` are the static features of the configurations
    that were compiled ahead, by key; samplers that have no use for them ignore them, as they do `related` tasks.
    """

    name: str
    uses_related: ClassVar[bool] = False

    def __init__(
        self,
        space: Space,
        first_guesses: Sequence[Mapping[str, TunableValue]] = (),
        features: Mapping[Key, Mapping[str, float]] | None = None,
        related: Sequence[RelatedTask] = (),
    ) -> None:
        self.space = space
        self.related = tuple(related)
        self.features = features or {}
        self.first_guesses = tuple(dict(guess) for guess in first_guesses if space.valid(guess))

    def ask(self, history: Sequence[Trial], n: int, rng: np.random.Generator) -> list[Config]:
        """Return up to `n` valid configurations that are new and different from each other.

        Fewer are returned where the space has no more. Trials of another space (with a value that is not listed) are
        ignored.
        """
        # A person may have changed the declared values since; such trials say nothing about this space.
        known = [trial for trial in history if self.space.row(trial.config) is not None]
        taken = {self.space.key(trial.config) for trial in known}
        guesses = self._guesses(taken)[:n]
        # The guesses of this question count as pending, so that the sampler does not suggest them again.
        known += [Trial(guess, pending=True) for guess in guesses]
        return guesses + (self._suggest(known, n - len(guesses), rng) if n > len(guesses) else [])

    def _guesses(self, taken: set[Key]) -> list[Config]:
        """Return the first guesses that are not taken, without repetition, as configurations of the space."""
        keys = dict.fromkeys(self.space.key(guess) for guess in self.first_guesses)
        names = self.space.names
        return [dict(zip(names, key, strict=True)) for key in keys if key not in taken]

    @abstractmethod
    def _suggest(self, history: Sequence[Trial], n: int, rng: np.random.Generator) -> list[Config]:
        """Suggest as `ask` does, without the first guesses. Every trial is a configuration of the space."""

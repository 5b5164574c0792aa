"""What a sampler is: a pure function from what was tried to what to try next.

There is no `tell`: the history is told with every question, so that the same history and generator give the same
suggestions after a crash, in another process or in a replay. A configuration is never suggested twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.search.space import Config, Key, Space
from runners.job import TunableValue


@dataclass(frozen=True)
class Trial:
    """A configuration that was suggested. `time_us` is None while it is `pending` and for good when it failed (did
    not build, was wrong, crashed); otherwise it is above 0, and less is better."""

    config: Mapping[str, TunableValue]
    time_us: float | None = None
    pending: bool = False

    def __post_init__(self) -> None:
        if self.time_us is not None and not 0 < self.time_us < float("inf"):
            raise ValueError(f"a time of {self.time_us} µs; a failure has None")

    @property
    def measured(self) -> bool:
        """Was it correct and timed?"""
        return self.time_us is not None and not self.pending

    @property
    def failed(self) -> bool:
        """Did it end without a time?"""
        return self.time_us is None and not self.pending


class Sampler(ABC):
    """A way of searching a space. `first_guesses`, such as a kernel's defaults or an agent's proposals, are suggested
    before anything else, best guess first; guesses that the space doesn't hold are passed over."""

    name: str

    def __init__(self, space: Space, first_guesses: Sequence[Mapping[str, TunableValue]] = ()) -> None:
        self.space = space
        self.first_guesses = tuple(dict(guess) for guess in first_guesses if space.valid(guess))

    def ask(self, history: Sequence[Trial], n: int, rng: np.random.Generator) -> list[Config]:
        """Up to `n` valid configurations that the history doesn't hold, different from each other; fewer where the
        space has no more. Trials of another space (a value that isn't listed) are not looked at."""
        known = [trial for trial in history if self.space.row(trial.config) is not None]
        taken = {self.space.key(trial.config) for trial in known}
        guesses = self._guesses(taken)[:n]
        known += [Trial(guess, pending=True) for guess in guesses]
        return guesses + (self._suggest(known, n - len(guesses), rng) if n > len(guesses) else [])

    def _guesses(self, taken: set[Key]) -> list[Config]:
        """The first guesses that are not taken, each once, as configurations of the space."""
        keys = dict.fromkeys(self.space.key(guess) for guess in self.first_guesses)
        names = self.space.names
        return [dict(zip(names, key, strict=True)) for key in keys if key not in taken]

    @abstractmethod
    def _suggest(self, history: Sequence[Trial], n: int, rng: np.random.Generator) -> list[Config]:
        """As `ask`, without the first guesses; every trial's configuration is one of the space."""

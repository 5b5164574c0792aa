"""Implement random search without repetition, the yardstick for the other samplers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optimizer.search.samplers.base import Sampler, Trial
from optimizer.search.samplers.candidates import draw_rows, rows_of, untried
from optimizer.search.space import Config


class RandomSampler(Sampler):
    """Provide `random`: every untried valid configuration is equally likely."""

    name = "random"

    def _suggest(self, history: Sequence[Trial], n: int, rng: np.random.Generator) -> list[Config]:
        rows = draw_rows(untried(self.space, rows_of(self.space, history)), n, rng)
        return [self.space.config(row) for row in rows]

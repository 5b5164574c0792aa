"""Random search without repetition: the yardstick."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optimizer.search.samplers.base import Sampler, Trial
from optimizer.search.samplers.candidates import rows_of, untried
from optimizer.search.space import Config, Rows


def drawn(rows: Rows, n: int, rng: np.random.Generator) -> Rows:
    """At most `n` of the rows, each equally likely."""
    return rows[rng.choice(len(rows), min(n, len(rows)), replace=False)]


class RandomSampler(Sampler):
    """`random`: every untried valid configuration is equally likely."""

    name = "random"

    def _suggest(self, history: Sequence[Trial], n: int, rng: np.random.Generator) -> list[Config]:
        tried = rows_of(self.space, history)
        rows = drawn(untried(self.space, tried, tried[:0]), n, rng)
        return [self.space.config(row) for row in rows]

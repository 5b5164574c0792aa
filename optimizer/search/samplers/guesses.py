"""Guess the machine-code descriptors of configurations that were not compiled from those that were.

Machine code follows from a few of the parameters, often exactly, so a regression over the compiled configurations knows
most of it. Without it the search would see nothing of what it has not compiled, and could not choose well what to
compile next. The regression is a Gaussian process with the prior's own weights: fitting them for every descriptor and
question would cost more than it gains.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from optimizer.search.samplers.features import Features
from optimizer.search.samplers.process import Process
from optimizer.search.samplers.static import StaticTable
from optimizer.search.space import Space

_NOISE = 1e-3  # variance; code of equal parameters is equal
_MOST = 400  # compiled configurations that guesses rest on


def with_guesses(table: StaticTable, space: Space) -> StaticTable:
    """Return the table with guesses for the configurations that it does not contain."""
    features = Features.of(space)
    at = np.random.default_rng(0).permutation(len(table.codes))[:_MOST]
    rows = np.column_stack(np.unravel_index(table.codes[at], table.shape)).astype(np.int32)
    centre = table.places[at].mean(axis=0)
    theta = np.log(np.append(features.expected, _NOISE))
    process = Process(features, rows, table.places[at] - centre, theta)
    return replace(table, guess=lambda others: _guessed(process, centre, others))


def _guessed(process: Process, centre: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, std = process.predict(rows)
    return np.clip(centre + mean, 0.0, 1.0), np.clip(std, 0.0, 1.0)

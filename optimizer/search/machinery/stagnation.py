"""Detect that nothing has improved for several rounds, so that another family of hypotheses is requested."""

from __future__ import annotations

from collections.abc import Sequence

# Rounds without a better kernel before the designer is told to try another family of ideas.
FLAT_ROUNDS = 5


def flat_rounds(best_us_by_round: Sequence[float | None], min_gain: float = 0.01) -> int:
    """Count the rounds at the end that brought no gain of at least `min_gain` (a fraction) over the best before them.

    The entry of a round is its best time in µs, or None for a round without a correct kernel.
    """
    best = float("inf")
    flat = 0
    for time_us in best_us_by_round:
        # A gain below the noise of the measurements is no progress.
        if time_us is not None and time_us < best * (1 - min_gain):
            best, flat = time_us, 0
        else:
            flat += 1
    return flat


def is_stagnant(best_us_by_round: Sequence[float | None], patience: int = FLAT_ROUNDS) -> bool:
    """Return True when the last `patience` rounds were all flat."""
    return patience > 0 and flat_rounds(best_us_by_round) >= patience

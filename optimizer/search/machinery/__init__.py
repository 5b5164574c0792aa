"""Provide parts that every strategy may use: novelty, repair, crossover, hand-off to tune, stagnation, notes."""

"""Define how far an output may be from what is expected."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerance:
    """Require |out - expected| <= atol + rtol * |expected|, for every element."""

    rtol: float
    atol: float


@dataclass(frozen=True)
class Loss:
    """Hold relative errors of norms, |difference|₂ / |exact|₂: over the whole output, and of the row with the
    largest."""

    overall: float
    worst_row: float

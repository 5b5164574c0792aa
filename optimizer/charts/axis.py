"""Build logarithmic axes whose ticks are complete numbers.

Plotly labels the ticks between powers of ten with one digit: 0.5 reads "5", and so does 5000.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

PREFIXES = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P"}
STEPS = (1, 2, 5)
# Up to this many powers of ten, ticks are at 1, 2 and 5; beyond, only at the powers.
FEW_DECADES = 3


def logarithmic(title: str, values: Collection[float], prefixed: bool = False) -> dict[str, Any]:
    """Return the axis for these values with room around them, ignoring values that are not positive.

    `prefixed` writes 20G instead of 20000000000.
    """
    axis: dict[str, Any] = {"title": {"text": title}, "type": "log"}
    shown = [value for value in values if value > 0 and math.isfinite(value)]
    if not shown:
        return axis
    # A factor, as room on a logarithmic axis is a ratio.
    low, high = min(shown) / 1.3, max(shown) * 1.3
    ticks = _ticks(low, high)
    return axis | {
        "range": [math.log10(low), math.log10(high)],
        "tickvals": ticks,
        "ticktext": [_with_prefix(tick) if prefixed else f"{tick:,.9g}" for tick in ticks],
    }


def _ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = STEPS if math.log10(high / low) <= FEW_DECADES else STEPS[:1]
    # Parse the decimal text: 2 * 10 ** -3 would give 0.002 with a rounding error that shows in the label.
    every = [float(f"{step}e{power}") for power in range(first, last + 1) for step in steps]
    return [tick for tick in every if low <= tick <= high]


def _with_prefix(value: float) -> str:
    thousands = max(min(math.floor(math.log10(value) / 3 + 1e-9), max(PREFIXES)), min(PREFIXES))
    return f"{value / 1000.0**thousands:.9g}{PREFIXES[thousands]}"

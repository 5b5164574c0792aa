"""Draw small charts as plain SVG, so that a report needs no script and no other file.

The report's tables repeat the numbers of each chart as text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from optimizer.charts.curve import Point
from optimizer.models import Hypothesis
from runners.job import CaseResult

WIDTH, HEIGHT = 720.0, 260.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 16.0, 12.0, 34.0
ROW = 26.0


@dataclass(frozen=True)
class Scale:
    """Map values to positions."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the position of a value, in SVG units with one decimal."""
        # All values may be equal.
        span = (self.high - self.low) or 1.0
        return round(self.start + (value - self.low) / span * (self.end - self.start), 1)

    def ticks(self, most: int = 6) -> list[float]:
        """Return round values within the scale, in steps of 1, 2 or 5 times a power of ten."""
        least = (self.high - self.low) / (most - 1) or 1.0
        power = 10.0 ** math.floor(math.log10(least))
        step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
        # The tolerance keeps a tick at the very end, which a quotient such as 2.9999999 would lose.
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [n * step for n in range(first, last + 1)]


def best_so_far(points: Sequence[Point], baseline: str) -> SafeString:
    """Draw speedup against evaluations: correct kernels as dots, the best so far as a step line."""
    known = [point for point in points if point.speedup is not None]
    if not known:
        return format_html("<p>{}</p>", "No kernel was timed.")
    x = Scale(0, max(1, points[-1].evaluations), LEFT, WIDTH - RIGHT)
    y = Scale(0, max(1.0, *(point.speedup or 0 for point in known)) * 1.05, HEIGHT - BOTTOM, TOP)
    dots = format_html_join(
        "", '<circle cx="{}" cy="{}" r="3" class="dot"><title>#{}: {}×</title></circle>',
        ((x.at(p.evaluations), y.at(p.speedup or 0), p.number, f"{p.speedup:.2f}") for p in known),
    )  # fmt: skip
    line = format_html('<path d="{}" class="best"/>', _steps(known, x, y))
    one = format_html('<line x1="{}" x2="{}" y1="{}" y2="{}" class="one"/>', LEFT, WIDTH - RIGHT, y.at(1), y.at(1))
    body = _axes(x, y, "Evaluations", f"Speedup over {baseline}") + one + line + dots
    return _chart(HEIGHT, "Best speedup so far against evaluations", body)


def cases(found: Sequence[CaseResult]) -> SafeString:
    """Draw the speedup by case with its 95 % interval."""
    timed = [case for case in found if case.speedup is not None]
    if not timed:
        return format_html("<p>{}</p>", "No case was timed.")
    height = TOP + BOTTOM + ROW * len(timed)
    x = Scale(0, max(1.0, *(case.speedup_high or case.speedup or 0 for case in timed)) * 1.05, 200, WIDTH - RIGHT)
    rows = format_html_join("", "{}", ((_case(case, x, n),) for n, case in enumerate(timed)))
    one = format_html('<line x1="{}" x2="{}" y1="{}" y2="{}" class="one"/>', x.at(1), x.at(1), TOP, height - BOTTOM)
    return _chart(height, "Speedup by case", _bottom(x, height, "Speedup over the baseline") + one + rows)


def hypotheses(found: Sequence[Hypothesis]) -> SafeString:
    """Draw predicted ranges as bars and measured gains as diamonds."""
    rows = [row for row in found if row.measured_gain is not None][:30]
    if not rows:
        return format_html("<p>{}</p>", "No hypothesis was measured.")
    values = [v for r in rows for v in (r.predicted_min, r.predicted_max, r.measured_gain, 0.0) if v is not None]
    height = TOP + BOTTOM + ROW * len(rows)
    x = Scale(min(values), max(values), 300, WIDTH - RIGHT)
    marks = format_html_join("", "{}", ((_hypothesis(row, x, n),) for n, row in enumerate(rows)))
    return _chart(height, "Predicted and measured gain", _bottom(x, height, "Gain, % of speed") + marks)


def _steps(points: Sequence[Point], x: Scale, y: Scale) -> str:
    path, last = "", None
    for point in points:
        here = (x.at(point.evaluations), y.at(point.best or 0))
        path += f"M{here[0]} {here[1]}" if last is None else f"H{here[0]}V{here[1]}"
        last = here
    return path


def _case(case: CaseResult, x: Scale, n: int) -> SafeString:
    y = TOP + ROW * (n + 0.5)
    low, high = case.speedup_low or case.speedup or 0, case.speedup_high or case.speedup or 0
    return format_html(
        '<text x="190" y="{}" class="end">{}</text><line x1="{}" x2="{}" y1="{}" y2="{}" class="range"/>'
        '<circle cx="{}" cy="{}" r="4" class="dot"/>',
        y + 4, case.name[:28], x.at(low), x.at(high), y, y, x.at(case.speedup or 0), y,
    )  # fmt: skip


def _hypothesis(row: Hypothesis, x: Scale, n: int) -> SafeString:
    y = TOP + ROW * (n + 0.5)
    bar = SafeString("")
    if row.predicted_min is not None and row.predicted_max is not None:
        left = x.at(row.predicted_min)
        bar = format_html('<rect x="{}" y="{}" width="{}" height="10" class="bar"/>', left, y - 5,
                          max(1, x.at(row.predicted_max) - left))  # fmt: skip
    at = x.at(row.measured_gain or 0)
    return format_html(
        '<text x="290" y="{}" class="end">{}</text>{}<path d="M{} {}l5 5l-5 5l-5 -5z" class="dot"/>',
        y + 4, row.title[:44], bar, at, y - 5,
    )  # fmt: skip


def _axes(x: Scale, y: Scale, across: str, up: str) -> SafeString:
    marks = ((LEFT, WIDTH - RIGHT, y.at(v), y.at(v), LEFT - 6, y.at(v) + 4, f"{v:.3g}") for v in y.ticks())
    lines = format_html_join(
        "", '<line x1="{}" x2="{}" y1="{}" y2="{}" class="grid"/><text x="{}" y="{}" class="end">{}</text>', marks
    )
    name = format_html('<text x="{}" y="{}">{}</text>', LEFT + 4, TOP + 10, up)
    return lines + name + _bottom(x, HEIGHT, across)


def _bottom(x: Scale, height: float, name: str) -> SafeString:
    ticks = format_html_join(
        "", '<text x="{}" y="{}" class="mid">{}</text>',
        ((x.at(v), height - BOTTOM + 14, f"{v:.3g}") for v in x.ticks()),
    )  # fmt: skip
    middle = (x.start + x.end) / 2
    return ticks + format_html('<text x="{}" y="{}" class="mid">{}</text>', middle, height - 4, name)


def _chart(height: float, name: str, body: SafeString) -> SafeString:
    return format_html(
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>', int(WIDTH), round(height), name, body
    )

"""Measure what a diff costs: the lines, the rows, the page; from 100 to 10,000 lines, and on a pair made to be
expensive.

    python -m benchmarks.diff [--markdown]

Realistic edits: a kernel's source, repeated with other names until it is long enough, of which 3 % of the lines are
changed, 1 % removed, 1 % added, and one function of 20 lines moved. *Cold* is a fresh process's second text pair (the
first pays for imports and regular expressions, as a server's first request does); the page's rows are those that it
shows unasked. The growth exponent is the slope of log time over log n: n log n has 1.1 to 1.2 in this range.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

import django

T = TypeVar("T")
SIZES = (100, 1_000, 3_000, 10_000)
REPEATS = 5
LIMIT_S = 5.0
COLD_LIMIT_S = 0.3
SEED_FILES = Path(__file__).parent.parent / "runners" / "problems" / "shipped"


@dataclass(frozen=True)
class Cost:
    """Hold the median seconds of one size, and the size of what is sent in KiB."""

    lines: int
    diff_s: float
    rows_s: float
    page_s: float
    kib: float


def main() -> None:
    """Measure and print; exit status 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kernelsci_site.settings")
    django.setup()
    measure(200)
    costs = {language: [measure(n, language) for n in SIZES] for language in ("cpp", "triton")}
    pathological_s, kept = pathological()
    print(_table(costs, pathological_s, kept, options.markdown))
    cold = max(cost.rows_s + cost.page_s for found in costs.values() for cost in found if cost.lines <= 3_000)
    raise SystemExit(cold > COLD_LIMIT_S or pathological_s > LIMIT_S or not kept)


def measure(lines: int, language: str = "cpp") -> Cost:
    """Return medians over fresh texts, so that no cache helps."""
    from optimizer.diffs.differ import diff
    from optimizer.diffs.rows import compare
    from optimizer.queries.diff_sides import Sides
    from optimizer.views.diff_page import Address, _all_rows

    diffs, rows, pages, kib = [], [], [], 0.0
    for repeat in range(REPEATS):
        old, new = edited(lines, language, random.Random(f"{lines}/{repeat}/{language}"))
        diffs.append(timed(partial(diff, old.split("\n"), new.split("\n")))[0])
        seconds, compared = timed(partial(compare, old, new))
        rows.append(seconds)
        sides = Sides(_Old(), _Old(), compared, language, ["source"])  # type: ignore[arg-type]
        seconds, markup = timed(partial(_all_rows, Address(1, 1), sides, None))
        pages.append(seconds)
        kib = len(markup.encode()) / 1024
    return Cost(lines, median(diffs), median(rows), median(pages), kib)


class _Old:
    """Represent a kernel where only its existence counts."""


def edited(lines: int, language: str, rng: random.Random) -> tuple[str, str]:
    """Return a long source and its edited version."""
    old = _long_source(lines, language, rng)
    new = []
    for line in old:
        draw = rng.random()
        if draw < 0.01:
            continue
        new.append(line.replace("0", "1").replace(" = ", " += ") + "  // changed" if draw < 0.04 else line)
        if draw > 0.99:
            new.append(f"    int added_{rng.randrange(10**9)} = {rng.randrange(10**6)};")
    start = rng.randrange(max(1, len(new) - 60))
    block, rest = new[start : start + 20], new[:start] + new[start + 20 :]
    place = rng.randrange(len(rest))
    return "\n".join(old), "\n".join([*rest[:place], *block, *rest[place:]])


def pathological() -> tuple[float, bool]:
    """Return the slowest pair's seconds to the rows, and whether the fallback is a correct diff. The pairs have 10,000
    lines of a dozen words in every order: one has no anchor, the other has one now and then, so that every stretch
    between two costs as much as the limit on edits allows."""
    from optimizer.diffs.differ import apply, diff
    from optimizer.diffs.rows import compare

    slowest, kept = 0.0, True
    for apart in (10_000, 2_000, 800, 400):
        rng = random.Random(apart)
        a, b = ([_word(n, apart, rng) for n in range(10_000)] for _ in range(2))
        seconds, _ = timed(partial(compare, "\n".join(a), "\n".join(b)))
        slowest, kept = max(slowest, seconds), kept and apply(diff(a, b), a, b) == b
    return slowest, kept


def _word(line: int, apart: int, rng: random.Random) -> str:
    return f"anchor {line}" if line % apart == apart - 1 else str(rng.randrange(12))


def timed(act: Callable[[], T]) -> tuple[float, T]:
    """Return the processor seconds of a call and its result. The call runs in one thread without waiting, so on a quiet
    machine these are the seconds on the clock, and other load does not change them."""
    start = time.thread_time()
    result = act()
    return time.thread_time() - start, result


def exponent(costs: list[Cost], of: Callable[[Cost], float]) -> float:
    """Return the slope of log seconds over log lines between 1,000 and 10,000 lines."""
    low, high = costs[1], costs[-1]
    return math.log(of(high) / of(low)) / math.log(high.lines / low.lines)


def _long_source(lines: int, language: str, rng: random.Random) -> list[str]:
    suffix = ".cpp" if language == "cpp" else ".py"
    files = sorted(path for path in SEED_FILES.glob(f"*/seeds/*{suffix}") if path.name != "reference.py")
    found: list[str] = []
    while len(found) < lines:
        name = f"v{rng.randrange(10**6)}"
        found += [line.replace("row", name) for line in rng.choice(files).read_text().splitlines()]
    return found[:lines]


def _table(costs: dict[str, list[Cost]], pathological_s: float, kept: bool, markdown: bool) -> str:
    head = ["language", "lines", "diff, ms", "rows, ms", "page's rows, ms", "cold together, ms", "KiB"]
    body = [
        [
            language,
            f"{cost.lines:,}",
            *(f"{1e3 * s:.1f}" for s in (cost.diff_s, cost.rows_s, cost.page_s, cost.rows_s + cost.page_s)),
            f"{cost.kib:.0f}",
        ]
        for language, found in costs.items()
        for cost in found
    ]
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(row) for row in body)]
    if markdown:
        lines = [f"| {line} |" for line in lines]
    growth = [
        f"{language}: diff n^{exponent(found, lambda c: c.diff_s):.2f}, "
        f"rows n^{exponent(found, lambda c: c.rows_s):.2f}"
        for language, found in costs.items()
    ]
    words = f"Slowest of the pathological pairs of 10,000 lines: {pathological_s:.2f} s of at most {LIMIT_S:g} s, "
    words += "a plain and correct diff." if kept else "WRONG."
    return "\n".join([*lines, "", "Growth from 1,000 to 10,000 lines: " + "; ".join(growth) + ".", words])


if __name__ == "__main__":
    main()

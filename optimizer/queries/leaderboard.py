"""Rank the fastest kernels of a problem on a target over all runs, and list published figures."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from django.db.models import Count, Max

from optimizer.models import Problem, Run, Target, User

LEADERS = 50
PUBLISHED = Path(__file__).with_name("published.toml")


@dataclass(frozen=True)
class Leader:
    """Hold the best kernel of one run.

    `time_us` is the geometric mean of the medians of all cases. The speedup is against the run's own baseline, timed
    alongside.
    """

    rank: int
    run: int
    title: str
    kernel: int
    strategy: str
    language: str
    baseline: str
    time_us: float
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    by: str
    version: int


@dataclass(frozen=True)
class Published:
    """Hold somebody else's figure. It was not measured here and is therefore never ranked."""

    label: str
    time_us: float
    hardware: str
    measure: str
    source: str


@dataclass(frozen=True)
class Bound:
    """Hold published lower bounds of single shapes."""

    hardware: str
    source: str
    times_us: dict[str, float]


@dataclass(frozen=True)
class Suite:
    """Hold a comparison of methods over a suite: name, success %, fast_1 %, mean speed over torch eager."""

    suite: str
    rows: Sequence[Sequence[Any]]
    hardware: str
    source: str


@dataclass(frozen=True)
class Board:
    """Hold one row of the overview: a problem on a target, and its best result."""

    problem: Problem
    target: Target
    runs: int
    best_speedup: float


def leaders_of(user: User, problem: Problem, target: Target, version: int | None = None) -> list[Leader]:
    """Return the best kernels of the runs that a person may see, fastest first.

    Times are comparable only within one version of the problem, since others have other cases.
    """
    # A subquery of ids: joined directly, the visibility rules would multiply rows before the limit applies.
    seen = Run.objects.visible_to(user).order_by().values("pk")
    runs = Run.objects.filter(
        pk__in=seen, target=target, problem_version__problem=problem, best_kernel__evaluation__time_us__isnull=False
    )
    runs = runs.filter(problem_version__number=version) if version else runs
    columns = (
        "pk", "title", "best_kernel__number", "strategy", "best_kernel__language", "baseline",
        "best_kernel__evaluation__time_us", "best_speedup", "best_speedup_low", "best_speedup_high",
        "created_by__username", "problem_version__number",
    )  # fmt: skip
    rows = runs.order_by("best_kernel__evaluation__time_us", "pk").values_list(*columns)[:LEADERS]
    return [_leader(rank, *row) for rank, row in enumerate(rows, 1)]


def boards_for(user: User) -> list[Board]:
    """Return every problem and target with a timed kernel that the person may see."""
    seen = Run.objects.visible_to(user).order_by().values("pk")
    timed = Run.objects.filter(pk__in=seen, best_speedup__isnull=False)
    rows = (
        timed.order_by()
        .values_list("problem_version__problem", "target")
        .annotate(n=Count("pk"), best=Max("best_speedup"))
    )
    # Both tables are small, and grouped rows contain only ids.
    problems, targets = Problem.objects.in_bulk(), Target.objects.in_bulk()
    boards = [Board(problems[problem], targets[target], n, best) for problem, target, n, best in rows]
    return sorted(boards, key=lambda board: (board.problem.title, board.target.title))


def published_for(problem: str, target: str) -> list[Published]:
    """Return published figures for a problem on such hardware, fastest first."""
    rows = [_without_scope(row, Published) for row in _published()["reference"] if _concerns(row, problem, target)]
    return sorted(rows, key=lambda row: row.time_us)


def bounds_for(problem: str, target: str) -> list[Bound]:
    """Return published lower bounds of single shapes."""
    return [_without_scope(row, Bound) for row in _published()["bound"] if _concerns(row, problem, target)]


def published_suites() -> list[Suite]:
    """Return published comparisons of methods over whole suites."""
    return [Suite(**row) for row in _published()["method"]]


@cache
def _published() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(PUBLISHED.read_text())


def _concerns(row: dict[str, Any], problem: str, target: str) -> bool:
    # Keys are prefixes of targets, so that a figure for an architecture applies to all of its devices.
    return bool(row["problem"] == problem and any(target.startswith(key) for key in row["targets"]))


def _without_scope(row: dict[str, Any], kind: Any) -> Any:
    return kind(**{name: value for name, value in row.items() if name not in ("problem", "targets")})


def _leader(rank: int, run: int, title: str, kernel: int, strategy: str, language: str, baseline: str,
            time_us: float, speedup: float | None, low: float | None, high: float | None, by: str | None,
            version: int) -> Leader:  # fmt: skip
    return Leader(rank, run, title or f"Run {run}", kernel, strategy, language, baseline, time_us, speedup, low, high,
                  by or "the system", version)  # fmt: skip

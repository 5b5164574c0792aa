"""Rank the fastest kernels of a problem on a target over all runs, and list published figures.

Times of different sessions do not compare: a machine is slower on one day than on another. What compares is the speedup
over the baseline that was timed alongside, in turns. A kernel's rank is one more than the number of kernels that are
proven better, whose interval lies above its own; kernels that cannot be told apart share a rank, as in Chatbot Arena
(Chiang et al. 2024).
"""

from __future__ import annotations

import datetime as dt
import tomllib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import Any

from django.db.models import Count, F, Max, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from optimizer.models import (
    AuthorKind,
    Evaluation,
    EvaluationPurpose,
    EvaluationStatus,
    Problem,
    Run,
    Target,
    User,
)

LEADERS = 50
BEST_FIRST = (F("best_speedup_low").desc(nulls_last=True), F("pk").asc())
_COLUMNS = (
    "pk", "title", "best_kernel__number", "strategy", "best_kernel__language", "baseline",
    "best_kernel__evaluation__time_us", "best_speedup", "best_speedup_low", "best_speedup_high",
    "created_by__username", "problem_version__number", "best_kernel__author_kind", "best_kernel",
)  # fmt: skip
RETIMED = ("speedup", "speedup_low", "speedup_high", "time_us", "finished_at")
PUBLISHED = Path(__file__).with_name("published.toml")


@dataclass(frozen=True)
class Leader:
    """Hold the best kernel of one run.

    The speedup is against the run's own baseline, timed alongside; where the kernel was timed again for the board at
    `retimed_at`, it is that one. `time_us` is the geometric mean of the medians of all cases. `is_seed` marks a kernel
    that no strategy wrote. `pk` is the kernel's, `kernel` its number in the run.
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
    is_seed: bool = False
    retimed_at: dt.datetime | None = None
    pk: int = 0

    @property
    def low(self) -> float:
        """Return the lower end of the speedup's interval, the speedup where there is no interval."""
        return self.speedup_low or self.speedup or 0.0

    @property
    def high(self) -> float:
        """Return the upper end of the speedup's interval, the speedup where there is no interval."""
        return self.speedup_high or self.speedup or 0.0


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


def leaders_of(
    user: User, problem: Problem, target: Target, version: int | None = None, baseline: str = ""
) -> list[Leader]:
    """Return the best kernels of the runs that a person may see, best first, ranked within their baseline.

    Speedups compare only within one version of the problem, since others have other cases, and against one baseline:
    without `baseline`, the one that most runs have.
    """
    runs = timed_runs(user, problem, target, version)
    baseline = baseline or next(iter(baselines_of(user, problem, target, version)), "")
    shown = runs.filter(baseline=baseline).order_by(*BEST_FIRST)
    return ranked(_with_retimings([_leader(*row) for row in shown.values_list(*_COLUMNS)[:LEADERS]]))


def leaders_by_target(user: User, problem: Problem, version: int) -> dict[int, list[Leader]]:
    """Return what `leaders_of` returns for each target that has leaders, by its id, with three queries for all."""
    runs = timed_runs(user, problem, None, version)
    counted = runs.order_by().values_list("target", "baseline").annotate(n=Count("pk"))
    usual: dict[int, str] = {}
    for target, baseline, _ in sorted(counted, key=lambda row: (-row[2], row[1])):
        usual.setdefault(target, baseline)
    chosen = reduce(or_, (Q(target=target, baseline=baseline) for target, baseline in usual.items()), Q(pk=None))
    place = Window(RowNumber(), partition_by="target", order_by=BEST_FIRST)
    rows = list(
        runs.filter(chosen).annotate(place=place).filter(place__lte=LEADERS).values_list("target", *_COLUMNS)
    )
    found: dict[int, list[Leader]] = defaultdict(list)
    for (target, *_), leader in zip(rows, _with_retimings([_leader(*row[1:]) for row in rows]), strict=True):
        found[target].append(leader)
    return {target: ranked(leaders) for target, leaders in found.items()}


def baselines_of(user: User, problem: Problem, target: Target, version: int | None = None) -> list[str]:
    """Return the baselines of the timed runs that a person may see, the most common one first."""
    rows = timed_runs(user, problem, target, version).order_by().values_list("baseline").annotate(n=Count("pk"))
    return [baseline for baseline, _ in sorted(rows, key=lambda row: (-row[1], row[0]))]


def ranked(leaders: Sequence[Leader]) -> list[Leader]:
    """Return the leaders with their ranks, best first; those that share a rank by their lower bound."""
    lows = sorted(one.low for one in leaders)
    # What lies to the right of the interval's upper end is proven better.
    placed = [replace(one, rank=1 + len(lows) - bisect_right(lows, one.high)) for one in leaders]
    return sorted(placed, key=lambda one: (one.rank, -one.low, one.run))


def timed_runs(user: User, problem: Problem, target: Target | None, version: int | None) -> QuerySet[Run]:
    """Return the runs that the person may see and whose best kernel was timed; without `target`, on all of them."""
    # A subquery of ids: joined directly, the visibility rules would multiply rows before the limit applies.
    seen = Run.objects.visible_to(user).order_by().values("pk")
    runs = Run.objects.filter(
        pk__in=seen, problem_version__problem=problem, best_kernel__evaluation__time_us__isnull=False
    )
    runs = runs.filter(target=target) if target else runs
    return runs.filter(problem_version__number=version) if version else runs


def _with_retimings(leaders: Sequence[Leader]) -> list[Leader]:
    """Put the newest timing for the board in place of the run's own, which another session measured. One query."""
    rows = Evaluation.objects.filter(
        kernel__in=[one.pk for one in leaders], purpose=EvaluationPurpose.RANKING,
        status=EvaluationStatus.CORRECT, speedup__isnull=False,
    ).order_by("pk")  # fmt: skip
    again = {row[0]: row[1:] for row in rows.values_list("kernel", *RETIMED)}
    return [_retimed(one, *again[one.pk]) if one.pk in again else one for one in leaders]


def _retimed(leader: Leader, speedup: float, low: float, high: float, time_us: float, at: dt.datetime) -> Leader:
    return replace(leader, speedup=speedup, speedup_low=low, speedup_high=high, time_us=time_us, retimed_at=at)


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


def _leader(run: int, title: str, kernel: int, strategy: str, language: str, baseline: str,
            time_us: float, speedup: float | None, low: float | None, high: float | None, by: str | None,
            version: int, author: str, pk: int) -> Leader:  # fmt: skip
    return Leader(0, run, title or f"Run {run}", kernel, strategy, language, baseline, time_us, speedup, low, high,
                  by or "the system", version, author == AuthorKind.SEED, None, pk)  # fmt: skip

"""Read what the runs of a problem spent and how fast their best kernels are."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from optimizer.models import Problem, Target, User
from optimizer.queries.leaderboard import timed_runs

Cost = Literal["usd", "tokens", "device_minutes", "evaluations"]
MOST_RUNS = 500


@dataclass(frozen=True)
class RunCost:
    """Hold what one run spent, and the speedup of its best kernel with its interval.

    `usd` is None where a model without a known price was asked.
    """

    run: int
    title: str
    strategy: str
    speedup: float
    low: float
    high: float
    usd: float | None
    tokens: int
    device_minutes: float
    evaluations: int

    def spent(self, kind: Cost) -> float | None:
        """Return what the run spent of one kind."""
        return getattr(self, kind)  # type: ignore[no-any-return]


def costs_of(user: User, problem: Problem, target: Target, version: int, baseline: str) -> list[RunCost]:
    """Return the newest runs that a person may see and whose speedups compare with each other."""
    runs = timed_runs(user, problem, target, version).filter(baseline=baseline, best_speedup__isnull=False)
    columns = (
        "pk", "title", "strategy", "best_speedup", "best_speedup_low", "best_speedup_high",
        "spent_usd", "spent_tokens", "spent_device_s", "spent_evaluations",
    )  # fmt: skip
    return [_cost(*row) for row in runs.order_by("-pk").values_list(*columns)[:MOST_RUNS]]


def _cost(run: int, title: str, strategy: str, speedup: float, low: float | None, high: float | None,
          usd: Decimal, tokens: int, device_s: float, evaluations: int) -> RunCost:  # fmt: skip
    known = None if tokens and not usd else float(usd)
    ends = (speedup if low is None else low, speedup if high is None else high)
    return RunCost(run, title, strategy, speedup, *ends, known, tokens, device_s / 60, evaluations)

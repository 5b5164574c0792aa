"""Find when a run's best kernel improved, and what the run had spent by then.

The points are those of the best-so-far curve: the largest lower bound leads, claims that were not confirmed never do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from optimizer.models import AuthorKind, Evaluation, EvaluationState, EvaluationStatus, LlmCall, Run
from optimizer.search.machinery.seeds import EARLIER_KEY


@dataclass(frozen=True)
class StepPoint:
    """Hold one improvement: the speedup from then on, and the spending until then.

    `evaluations` counts those that a budget counts, so a seed that leads has 0.
    """

    speedup: float
    evaluations: int
    tokens: int
    usd: float
    device_s: float
    minutes: float

    def as_json(self) -> dict[str, Any]:
        """Return the point as a cell stores it."""
        return {
            name: round(value, 6) if isinstance(value, float) else value for name, value in asdict(self).items()
        }


def steps_of(runs: Sequence[Run]) -> dict[int, list[StepPoint]]:
    """Return the improvements of each run by its id, with two queries."""
    evaluations = _by_run(
        Evaluation.objects.filter(first_of__run__in=runs, state=EvaluationState.DONE, finished_at__isnull=False)
        .order_by("finished_at", "pk")
        .values_list(
            "kernel__run_id",
            "finished_at",
            "status",
            "unconfirmed",
            "speedup",
            "speedup_low",
            "device_s",
            "kernel__author_kind",
            "kernel__key",
        )
    )
    calls = _by_run(
        LlmCall.objects.filter(run__in=runs, answered_at__isnull=False)
        .order_by("answered_at", "pk")
        .values_list("run_id", "answered_at", "prompt_tokens", "answer_tokens", "cost_usd")
    )
    return {run.pk: list(_improvements(run, evaluations[run.pk], calls[run.pk])) for run in runs}


def _improvements(run: Run, evaluations: list[Any], calls: list[Any]) -> Iterator[StepPoint]:
    began, best_low = run.started_at or run.created_at, 0.0
    counted, device_s, tokens, usd, asked = 0, 0.0, 0, 0.0, 0
    for ended, status, unconfirmed, speedup, low, held_s, author, key in evaluations:
        while asked < len(calls) and calls[asked][0] <= ended:
            _, prompt, answer, cost = calls[asked]
            tokens, usd, asked = tokens + (prompt or 0) + (answer or 0), usd + float(cost or 0), asked + 1
        device_s += held_s
        counted += author not in (AuthorKind.SEED, AuthorKind.PERSON)
        leads = status == EvaluationStatus.CORRECT and speedup and not unconfirmed and (low or 0.0) > best_low
        if leads and is_own(author, key):
            best_low = low
            minutes = max(0.0, (ended - began).total_seconds() / 60)
            yield StepPoint(speedup, counted, tokens, usd, device_s, minutes)


def is_own(author_kind: str, key: str) -> bool:
    """Return True for a kernel that counts as a run's result: made by it, or taken over by its warm start.

    A seed that ships with the problem, its reference among them, is nobody's achievement.
    """
    return author_kind != AuthorKind.SEED or key.startswith(EARLIER_KEY)


def _by_run(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = defaultdict(list)
    for run, *rest in rows:
        found[run].append(rest)
    return found

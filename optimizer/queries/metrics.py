"""Compute the metrics of the whole installation: a few counts over indexed columns.

They contain no names of runs, teams or people.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Count, Min, Sum
from django.utils import timezone

from optimizer.models import (
    CallState,
    Evaluation,
    EvaluationState,
    Job,
    JobState,
    LlmCall,
    Run,
    RunEvent,
    Runner,
    RunState,
)

Sample = tuple[dict[str, str], float]


@dataclass(frozen=True)
class Metric:
    """Hold one metric: its name without the product's prefix, `gauge` or `counter`, help text, and values by labels."""

    name: str
    kind: str
    help: str
    samples: list[Sample]


def read_metrics() -> list[Metric]:
    """Return all metrics that can be read from the database."""
    return [
        Metric("queue_depth", "gauge", "Jobs that wait or are worked on, by queue.", _depth()),
        Metric("queue_oldest_wait_seconds", "gauge", "Age of the oldest waiting job, by queue.", _oldest()),
        Metric("evaluations_total", "counter", "Ended evaluations, by status and verdict.", _evaluations()),
        Metric("jobs_claimed_again_total", "counter", "Jobs that lost a worker at least once.", _claimed_again()),
        Metric("llm_calls", "gauge", "Questions to models, by state.", _calls()),
        Metric("llm_cost_usd_total", "counter", "What models have cost, in dollars, as far as prices are known.",
               [({}, float(LlmCall.objects.aggregate(usd=Sum("cost_usd"))["usd"] or 0))]),
        Metric("llm_tokens_total", "counter", "Tokens asked and answered.", _tokens()),
        Metric("runs", "gauge", "Runs that have not ended, by state.", _runs()),
        Metric("runners_alive", "gauge", "Measuring workers heard of within a minute.",
               [({}, sum(runner.is_alive for runner in Runner.objects.all()))]),
        Metric("newest_event_age_seconds", "gauge", "How long ago anything last happened in a run.", _quiet()),
    ]  # fmt: skip


def _depth() -> list[Sample]:
    # `order_by()` removes the model's default order, whose columns would otherwise split the groups.
    rows = Job.objects.filter(state__in=[JobState.QUEUED, JobState.RUNNING])
    counted = rows.order_by().values_list("queue", "state").annotate(n=Count("pk"))
    return [({"queue": queue, "state": state}, n) for queue, state, n in counted]


def _oldest() -> list[Sample]:
    rows = Job.objects.filter(state=JobState.QUEUED).order_by().values_list("queue")
    now = timezone.now()
    return [({"queue": queue}, (now - since).total_seconds()) for queue, since in rows.annotate(Min("created_at"))]


def _evaluations() -> list[Sample]:
    ended = Evaluation.objects.filter(state=EvaluationState.DONE).order_by()
    counted = ended.values_list("status", "verdict").annotate(n=Count("pk"))
    return [({"status": status, "verdict": verdict or "none"}, n) for status, verdict, n in counted]


def _claimed_again() -> list[Sample]:
    return [({}, Job.objects.filter(attempts__gt=1).count())]


def _calls() -> list[Sample]:
    return _by_state(LlmCall.objects.order_by().values_list("state").annotate(n=Count("pk")), CallState)


def _tokens() -> list[Sample]:
    sums = LlmCall.objects.aggregate(asked=Sum("prompt_tokens"), answered=Sum("answer_tokens"))
    return [({"kind": kind}, total or 0) for kind, total in sums.items()]


def _runs() -> list[Sample]:
    alive = [state for state in RunState if not state.is_terminal]
    return _by_state(
        Run.objects.filter(state__in=alive).order_by().values_list("state").annotate(Count("pk")), alive
    )


def _by_state(counted: Iterable[tuple[str, int]], states: Iterable[str]) -> list[Sample]:
    """Return one sample per state, zero where there is no row, because an alarm needs the series to exist."""
    found = dict(counted)
    return [({"state": str(state)}, found.get(state, 0)) for state in states]


def _quiet() -> list[Sample]:
    newest = RunEvent.objects.order_by("-pk").values_list("created_at", flat=True).first()
    return [({}, (timezone.now() - newest).total_seconds())] if newest else []

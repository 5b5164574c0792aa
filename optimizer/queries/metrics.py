"""Compute the metrics of the whole installation: a few counts over indexed columns.

They contain no names of runs, teams or people.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Count, Min, Sum
from django.utils import timezone
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

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
from optimizer.models.choices import OPEN_JOB_STATES

PREFIX = "kernelsci_"
Rows = Iterable[tuple[Any, ...]]


def read_metrics() -> list[Metric]:
    """Return all metrics that can be read from the database."""
    return [
        _gauge("queue_depth", "Jobs that wait or are worked on.", ["queue", "state"], _depth()),
        _gauge("queue_oldest_wait_seconds", "Age of the oldest waiting job.", ["queue"], _oldest()),
        _counter("evaluations", "Ended evaluations.", ["status", "verdict"], _evaluations()),
        _counter("jobs_claimed_again", "Jobs that lost a worker at least once.", [], _claimed_again()),
        _gauge("llm_calls", "Questions to models.", ["state"], _calls()),
        _counter("llm_cost_usd", "What models have cost, in dollars, as far as prices are known.", [], _cost()),
        _counter("llm_tokens", "Tokens asked and answered.", ["kind"], _tokens()),
        _gauge("runs", "Runs that have not ended.", ["state"], _runs()),
        _gauge("runners_alive", "Measuring workers heard of within a minute.", [], _runners_alive()),
        _gauge("newest_event_age_seconds", "How long ago anything last happened in a run.", [], _quiet()),
    ]


def _gauge(name: str, documentation: str, labels: list[str], rows: Rows) -> Metric:
    return _filled(GaugeMetricFamily(f"{PREFIX}{name}", documentation, labels=labels), rows)


def _counter(name: str, documentation: str, labels: list[str], rows: Rows) -> Metric:
    # The library appends `_total` to the name, as Prometheus asks of counters.
    return _filled(CounterMetricFamily(f"{PREFIX}{name}", documentation, labels=labels), rows)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, rows: Rows) -> Metric:
    """Add the rows to the family and return it: each row holds the labels' values, and last the number."""
    for *labels, value in rows:
        family.add_metric(labels, value)
    return family


def _depth() -> Rows:
    # `order_by()` removes the model's default order, whose columns would otherwise split the groups.
    rows = Job.objects.filter(state__in=OPEN_JOB_STATES)
    return rows.order_by().values_list("queue", "state").annotate(n=Count("pk"))


def _oldest() -> Rows:
    rows = Job.objects.filter(state=JobState.QUEUED).order_by().values_list("queue")
    now = timezone.now()
    return [(queue, (now - since).total_seconds()) for queue, since in rows.annotate(Min("created_at"))]


def _evaluations() -> Rows:
    ended = Evaluation.objects.filter(state=EvaluationState.DONE).order_by()
    counted = ended.values_list("status", "verdict").annotate(n=Count("pk"))
    return [(status, verdict or "none", n) for status, verdict, n in counted]


def _claimed_again() -> Rows:
    return [(Job.objects.filter(attempts__gt=1).count(),)]


def _calls() -> Rows:
    return _by_state(LlmCall.objects.order_by().values_list("state").annotate(n=Count("pk")), CallState)


def _cost() -> Rows:
    return [(LlmCall.objects.aggregate(usd=Sum("cost_usd"))["usd"] or 0,)]


def _tokens() -> Rows:
    sums = LlmCall.objects.aggregate(asked=Sum("prompt_tokens"), answered=Sum("answer_tokens"))
    return [(kind, total or 0) for kind, total in sums.items()]


def _runs() -> Rows:
    alive = [state for state in RunState if not state.is_terminal]
    return _by_state(
        Run.objects.filter(state__in=alive).order_by().values_list("state").annotate(Count("pk")), alive
    )


def _runners_alive() -> Rows:
    return [(sum(runner.is_alive for runner in Runner.objects.all()),)]


def _by_state(counted: Iterable[tuple[str, int]], states: Iterable[str]) -> Rows:
    """Return one row per state, zero where the table has none, because an alarm needs the series to exist."""
    found = dict(counted)
    return [(str(state), found.get(state, 0)) for state in states]


def _quiet() -> Rows:
    newest = RunEvent.objects.order_by("-pk").values_list("created_at", flat=True).first()
    return [((timezone.now() - newest).total_seconds(),)] if newest else []

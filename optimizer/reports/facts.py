"""Read the content of a report once and in bounded amounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from optimizer.charts.curve import Point, points_of
from optimizer.models import Evaluation, EvaluationStatus, Hypothesis, Kernel, Run
from optimizer.queries.headline import headline_evaluation, show_stated
from optimizer.queries.run_summary import RunSummary, summarise
from optimizer.queries.settled import settled_in
from optimizer.queries.timing import CaseRow, case_rows, has_call_time, newest_noise_warning
from optimizer.search import settings_in_force
from runners.job import JobResult

FASTEST = 20
HYPOTHESES = 60


@dataclass(frozen=True)
class Facts:
    """Hold everything in a report.

    `line` is the best kernel with its ancestors, oldest first. `result` is the harness's result behind the headline,
    and `rows` are its cases, with call time where `has_call` is True. `settings` are the strategy's with defaults
    filled in. `warm_start` names the kernels of earlier runs with which this one began or that its prompts
    contained. `settled` are the confirmations in cold processes. `noise` warns of a noisy machine.
    """

    run: Run
    made_at: str
    summary: RunSummary
    points: Sequence[Point]
    best: Kernel | None
    result: JobResult | None
    line: Sequence[Kernel]
    fastest: Sequence[Kernel]
    hypotheses: Sequence[Hypothesis]
    settings: Mapping[str, Any]
    rows: Sequence[CaseRow] = ()
    has_call: bool = False
    settled: Sequence[Evaluation] = ()
    noise: str = ""
    warm_start: Sequence[str] = ()


def facts_of(run: Run) -> Facts:
    """Read the facts of a run."""
    best = run.best_kernel
    evaluation = headline_evaluation(run)
    chosen = Hypothesis.objects.filter(run=run, measured_gain__isnull=False).order_by("-measured_gain")
    result = evaluation.as_readable_result() if evaluation else None
    return Facts(
        run=run,
        made_at=f"{timezone.now():%Y-%m-%d %H:%M} UTC",
        summary=summarise(run),
        points=points_of(run),
        best=best,
        result=result,
        line=ancestry(best) if best else [],
        fastest=_fastest(run),
        hypotheses=list(chosen[:HYPOTHESES]),
        settings=settings_in_force(run.strategy, run.settings),
        rows=case_rows(result),
        has_call=has_call_time(result),
        settled=settled_in(run),
        noise=newest_noise_warning(run),
        warm_start=_warm_start(run),
    )


def ancestry(kernel: Kernel) -> list[Kernel]:
    """Return the kernel and its bases back to the seed, oldest first."""
    line, seen = [kernel], {kernel.pk}
    while (parent := Kernel.objects.filter(child_links__kernel=line[0], child_links__rank=0).first()) is not None:
        if parent.pk in seen:
            break
        seen.add(parent.pk)
        line.insert(0, parent)
    return line


def _warm_start(run: Run) -> list[str]:
    begun_with = (
        run.kernels.filter(meta__has_key="earlier").order_by("number").values_list("meta__earlier", flat=True)
    )
    return [f"#{kernel['number']} of run {kernel['run']}" for kernel in begun_with] + _lent(run)


def _lent(run: Run) -> list[str]:
    """Return the kernels of other problems that the run's prompts contained."""
    calls = run.calls.filter(context_report__taken__contains=[{"scope": "kernel"}])
    taken = [entry for report in calls.values_list("context_report", flat=True) for entry in report["taken"]]
    refs = {str(entry["ref"]) for entry in taken if entry["scope"] == "kernel"}
    lent = Kernel.objects.filter(pk__in=[ref.removeprefix("kernel-") for ref in refs]).order_by("pk")
    named = lent.values_list("number", "run")
    return [f"#{number} of run {lender}, on another problem, in prompts" for number, lender in named]


def _fastest(run: Run) -> list[Kernel]:
    timed = run.kernels.filter(evaluation__status=EvaluationStatus.CORRECT, evaluation__time_us__isnull=False)
    light = timed.select_related("evaluation", "hypothesis").defer("source", "report", "meta", "evaluation__result")
    return show_stated(run, light.best_first()[:FASTEST])

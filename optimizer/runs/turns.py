"""Order what a run has waiting for a scarce device: what is worth most for each second of the device goes first.

The run's jobs exchange their places in the queue among themselves, so that no other run waits longer for it.
"""

from __future__ import annotations

import math
from statistics import median

from optimizer.models import Job, JobState, Run
from optimizer.models.job import TURN
from optimizer.queries.prediction import figures_before_measuring
from optimizer.runs.plan import Forecast, PlannedLine, Stage


def order_waiting(run: Run) -> None:
    """Order the run's first evaluations that wait for its device. Call under the run's lock.

    Kernels without a prediction count as the median of the others. A processor of this machine is not scarce.
    """
    if run.target.key == "cpu":
        return
    waiting = Job.objects.filter(evaluation__first_of__run=run, state=JobState.QUEUED, priority=run.priority)
    jobs = list(waiting.select_related("evaluation__kernel").order_by(TURN))
    if len(jobs) < 2:
        return
    forecast = Forecast(run)
    if forecast.model is None:
        return
    lines = [_line(forecast, job) for job in jobs]
    known = [line.worth for line in lines if line.worth is not None]
    usual = median(known) if known else 0.0
    order = sorted(range(len(jobs)), key=lambda at: _rank(lines[at], usual))
    places = [job.turn for job in jobs]
    for place, at in zip(places, order, strict=True):
        # A runner may claim a job meanwhile, and then its place does not matter any more.
        Job.objects.filter(pk=jobs[at].pk, state=JobState.QUEUED).exclude(place=place).update(place=place)


def _line(forecast: Forecast, job: Job) -> PlannedLine:
    kernel = job.evaluation.kernel if job.evaluation else None
    figures = figures_before_measuring(kernel) if kernel else {}
    return forecast.line("", None, Stage.QUEUED, "", figures)


def _rank(line: PlannedLine, usual: float) -> tuple[float, float]:
    """Return the key by which candidates sort: worth, and of equals the faster one."""
    worth = usual if line.worth is None else line.worth
    return (-worth, line.predicted.time_us if line.predicted else math.inf)

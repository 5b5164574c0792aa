"""Order what a run has waiting for a scarce device: what is worth most for each second of the device goes first.

The run's jobs exchange their places in the queue among themselves, so that no other run waits longer for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from optimizer.models import Job, JobState, Run
from optimizer.models.job import TURN
from optimizer.queries.prediction import figures_before_measuring
from optimizer.runs.plan import Forecast, PlannedLine, Stage
from runners.static_features.cost import descriptors, typical_programs


def order_waiting(run: Run) -> None:
    """Order the run's first evaluations that wait for its device. Call under the run's lock.

    Before times are predicted, the rules of the hardware rank the kernels. What has no figures counts as the median of
    the others. A processor of this machine is not scarce.
    """
    if run.target.key == "cpu":
        return
    waiting = Job.objects.filter(evaluation__first_of__run=run, state=JobState.QUEUED, priority=run.priority)
    jobs = list(waiting.select_related("evaluation__kernel").order_by(TURN))
    if len(jobs) < 2:
        return
    forecast = Forecast(run)
    lines = [_line(forecast, job) for job in jobs]
    ranks = _by_worth(lines) if forecast.model else _by_cost(lines)
    order = sorted(range(len(jobs)), key=ranks.__getitem__)
    places = [job.turn for job in jobs]
    for place, at in zip(places, order, strict=True):
        # A runner may claim a job meanwhile, and then its place does not matter any more.
        Job.objects.filter(pk=jobs[at].pk, state=JobState.QUEUED).exclude(place=place).update(place=place)


def _line(forecast: Forecast, job: Job) -> PlannedLine:
    kernel = job.evaluation.kernel if job.evaluation else None
    figures = figures_before_measuring(kernel) if kernel else {}
    return forecast.line("", None, Stage.QUEUED, "", figures)


def _by_worth(lines: Sequence[PlannedLine]) -> list[tuple[float, float]]:
    """Return the keys by which candidates sort: worth, and of equals the faster one."""
    times_us = [line.predicted.time_us if line.predicted else math.inf for line in lines]
    return [(-worth, us) for worth, us in zip(_filled([line.worth for line in lines]), times_us, strict=True)]


def _by_cost(lines: Sequence[PlannedLine]) -> list[tuple[float, float]]:
    """Return the keys by which candidates sort where no time is predicted: the estimated cost alone."""
    figures = [line.figures for line in lines]
    programs = typical_programs(figures)
    costs = [descriptors(one, programs)["cost"] if one else None for one in figures]
    return [(cost, 0.0) for cost in _filled(costs)]


def _filled(figures: Sequence[float | None]) -> list[float]:
    """Return the figures, with the median of those that are known in place of the others."""
    known = [one for one in figures if one is not None]
    usual = median(known) if known else 0.0
    return [usual if one is None else one for one in figures]

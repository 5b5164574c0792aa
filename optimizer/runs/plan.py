"""Say in advance what a run will send to its device, and why.

A plan lists what is on the device and in its queue, what is still being built, and what the strategy would send next
if nothing new became known. Each line has the predicted time with its interval, the expected improvement over the run's
best kernel, and the device time that it is expected to take. A prediction ranks and warns; it is never a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from optimizer.models import Evaluation, EvaluationState, Run, RunState
from optimizer.queries.device_time import DeviceTime, device_time_of
from optimizer.queries.prediction import figures_before_measuring, model_of
from optimizer.runs.budget import open_on_device
from optimizer.runs.history import history_of, problem_of
from optimizer.runs.languages import languages_for
from optimizer.runs.strategies import strategy_of
from optimizer.search.machinery.time_model import FEWEST, Prediction, TimeModel
from runners.job import Effort

_RULES = "Until then, what the rules of the hardware estimate as the cheapest goes first."
# Lines of what the strategy would send next.
MOST_NEXT = 8


class Stage(StrEnum):
    """List how far a candidate is on its way to the device."""

    RUNNING = "on the device"
    QUEUED = "in the queue"
    BUILDING = "being built"
    NEXT = "next"


@dataclass(frozen=True)
class PlannedLine:
    """Hold one candidate. `number` is that of its kernel, None before it is one.

    `improvement` is the expected share of the best kernel's time that it saves. `after_s` is the run's device time once
    it has been measured, and `fits` whether that is within the budget; both are None where it is not known. `figures`
    are its static features, from which its cost is estimated where no time is predicted; empty without machine code.
    """

    title: str
    number: int | None
    stage: Stage
    why: str
    predicted: Prediction | None = None
    improvement: float | None = None
    device_s: float | None = None
    after_s: float | None = None
    fits: bool | None = None
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def worth(self) -> float | None:
        """Return the expected improvement for each second of the device."""
        return self.improvement / self.device_s if self.improvement is not None and self.device_s else None

    @property
    def improvement_percent(self) -> float | None:
        """Return the expected improvement in per cent."""
        return None if self.improvement is None else 100 * self.improvement

    @property
    def worth_percent(self) -> float | None:
        """Return the expected improvement for each second of the device in per cent."""
        return None if self.worth is None else 100 * self.worth


@dataclass(frozen=True)
class Plan:
    """Hold the lines of a plan, in the order in which they are sent.

    `left_s` is what is left of the budget of device time, None without one. `note` says why figures are missing.
    """

    lines: list[PlannedLine]
    spent_s: float
    left_s: float | None
    device: DeviceTime | None
    note: str = ""


class Forecast:
    """Hold what candidates are judged by. Each part is read on first use: the plan of an ended run needs no model."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @cached_property
    def model(self) -> TimeModel | None:
        """Return the model that predicts times, None before enough kernels were measured."""
        return model_of(self._run)

    @cached_property
    def best_us(self) -> float | None:
        """Return the time of the run's best kernel in µs, None without one."""
        # A repetition is the first evaluation of no kernel, so asking for None would find those of any run.
        if (best := self._run.best_kernel_id) is None:
            return None
        return Evaluation.objects.filter(first_of=best).values_list("time_us", flat=True).first()

    @cached_property
    def device(self) -> DeviceTime | None:
        """Return what evaluations take of the device, None before one has ended."""
        return device_time_of(self._run)

    def line(
        self, title: str, number: int | None, stage: Stage, why: str, figures: Mapping[str, float]
    ) -> PlannedLine:
        """Return the line of a candidate with these static features."""
        predicted = self.model.predict(figures) if self.model else None
        improvement = predicted.improvement(self.best_us) if predicted and self.best_us else None
        seconds = self.device.seconds(predicted.time_us if predicted else None) if self.device else None
        return PlannedLine(title, number, stage, why, predicted, improvement, seconds, figures=figures)


def plan_of(run: Run) -> Plan:
    """Return what the run will send as things stand; nothing for a run that has ended."""
    forecast = Forecast(run)
    limit_s = None if run.budget_device_minutes is None else 60 * run.budget_device_minutes
    left_s = None if limit_s is None else max(0.0, limit_s - run.spent_device_s)
    lines = [] if run.state_choice.is_terminal else list(_lines(run, forecast))
    return Plan(
        list(_added_up(lines, run.spent_device_s, limit_s)), run.spent_device_s, left_s, forecast.device,
        _note(forecast, lines),
    )  # fmt: skip


def _lines(run: Run, forecast: Forecast) -> Iterator[PlannedLine]:
    if run.state == RunState.PENDING:
        yield from _seeds(run, forecast)
        return
    yield from _open(run, forecast)
    if run.state != RunState.STOPPING and not run.finish_reason:
        for one in strategy_of(run).preview(history_of(run), MOST_NEXT):
            yield forecast.line(one.title, None, Stage.NEXT, one.why, one.figures)


def _seeds(run: Run, forecast: Forecast) -> Iterator[PlannedLine]:
    """Yield the seeds of a run that has not begun."""
    languages = languages_for(run.target.key)
    for seed in problem_of(run).seeds:
        if seed.source.language in languages:
            title = seed.title or seed.name
            yield forecast.line(title, None, Stage.NEXT, "seed of the problem", {})


def _open(run: Run, forecast: Forecast) -> Iterator[PlannedLine]:
    """Yield the run's open evaluations in the order in which runners claim them."""
    for one in sorted(open_on_device(run).select_related("kernel", "job"), key=_turn):
        kernel = one.kernel
        yield forecast.line(
            kernel.title or kernel.key, kernel.number, _stage(one), _why(one), figures_before_measuring(kernel)
        )


def _stage(evaluation: Evaluation) -> Stage:
    if evaluation.state == EvaluationState.RUNNING:
        return Stage.RUNNING
    return Stage.QUEUED if hasattr(evaluation, "job") else Stage.BUILDING


def _turn(evaluation: Evaluation) -> tuple[int, int, int]:
    """Return the key by which open evaluations sort: on the device, in the queue's order, being built."""
    job = getattr(evaluation, "job", None)
    # What is being built has no job, and so no place in the queue yet.
    if job is None:
        return (2, 0, evaluation.pk)
    return (int(evaluation.state != EvaluationState.RUNNING), job.priority, job.turn)


def _why(evaluation: Evaluation) -> str:
    if evaluation.effort == Effort.CONFIRM:
        return "confirms a leader"
    return {
        "seed": "seed of the problem",
        "person": "edited by a person",
        "tuner": "chosen by the sampler",
    }.get(evaluation.kernel.author_kind, "written by an agent")


def _added_up(lines: list[PlannedLine], spent_s: float, limit_s: float | None) -> Iterator[PlannedLine]:
    """Yield the lines with the run's device time after each."""
    after = spent_s
    for line in lines:
        if line.device_s is None:
            yield line
            continue
        after += line.device_s
        yield replace(line, after_s=after, fits=None if limit_s is None else after <= limit_s)


def _note(forecast: Forecast, lines: list[PlannedLine]) -> str:
    """Return why figures are missing, empty where all are there."""
    if not lines:
        return ""
    if forecast.model is None:
        told = f"No time is predicted before {FEWEST} correct kernels with static features were measured."
        return f"{told} {_RULES}" if any(line.figures for line in lines) else told
    if any(line.predicted is None for line in lines):
        return "A time is predicted only for kernels whose machine code was read: they were built here."
    return ""

"""What tuned parameters did to the time: trials in a table, and how much of the variation each parameter explains.

Importance is the main effect on the logarithm of the time, the first-order term of a functional ANOVA (Hutter, Hoos
and Leyton-Brown, "An Efficient Approach for Assessing Hyperparameter Importance", ICML 2014), estimated from the
trials themselves and not from a model of them, with the bias of few trials taken out (epsilon squared, Kelley 1935):
(between groups − (groups − 1) × mean square within) ÷ total. What interactions explain belongs to no parameter alone,
so the shares need not add up to one; they can be told apart only where the trials vary more than one parameter.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from optimizer.models import EvaluationStatus, Run
from runners.job import TunableValue

MOST = 2_000
LEAST_TRIALS = 5


@dataclass(frozen=True)
class Trial:
    """A correct kernel with its parameters."""

    number: int
    values: dict[str, TunableValue]
    time_us: float
    speedup: float | None


@dataclass(frozen=True)
class Importance:
    """How much of the variation of log time a parameter explains alone, 0 to 1; `values` is how many were tried and
    `best` the value with the least mean."""

    name: str
    share: float
    values: int
    best: TunableValue


@dataclass(frozen=True)
class Space:
    """Trials that vary the same parameters."""

    names: tuple[str, ...]
    trials: Sequence[Trial]

    @property
    def key(self) -> str:
        """How an address names it."""
        return ".".join(self.names)


def spaces_of(run: Run) -> list[Space]:
    """The run's trials by the parameters they set, most trials first."""
    kernels = run.kernels.filter(evaluation__status=EvaluationStatus.CORRECT, evaluation__time_us__isnull=False)
    fields = ("number", "tunables", "evaluation__time_us", "evaluation__speedup")
    groups: dict[tuple[str, ...], list[Trial]] = defaultdict(list)
    for row in kernels.exclude(tunables={}).order_by("-number").values_list(*fields)[:MOST]:
        trial = Trial(*row)
        groups[tuple(sorted(trial.values))].append(trial)
    return sorted((Space(names, rows[::-1]) for names, rows in groups.items()), key=lambda one: -len(one.trials))


def fastest(space: Space, most: int) -> list[Trial]:
    """The fastest trials, at most so many, fastest first."""
    return sorted(space.trials, key=lambda trial: trial.time_us)[:most]


def importances(space: Space) -> list[Importance]:
    """Of every parameter, most important first; nothing from fewer than five trials."""
    if len(space.trials) < LEAST_TRIALS:
        return []
    logs = [math.log(trial.time_us) for trial in space.trials]
    return sorted((_importance(space, name, logs) for name in space.names), key=lambda one: -one.share)


def _importance(space: Space, name: str, logs: Sequence[float]) -> Importance:
    groups: dict[TunableValue, list[float]] = defaultdict(list)
    for trial, log in zip(space.trials, logs, strict=True):
        groups[trial.values[name]].append(log)
    mean = fmean(logs)
    total = sum((log - mean) ** 2 for log in logs)
    between = sum(len(found) * (fmean(found) - mean) ** 2 for found in groups.values())
    free = len(logs) - len(groups)
    within = (total - between) / free if free > 0 else total
    share = (between - (len(groups) - 1) * within) / total if total > 0 else 0.0
    best = min(groups, key=lambda value: fmean(groups[value]))
    return Importance(name, max(0.0, share), len(groups), best)

"""Measure the effect of tuned parameters on the time: trials by parameter, and the importance of each parameter.

Importance is the main effect on the logarithm of the time, the first-order term of a functional ANOVA (Hutter, Hoos
and Leyton-Brown, "An Efficient Approach for Assessing Hyperparameter Importance", ICML 2014). It is estimated from
the trials themselves instead of a model of them, and corrected for the bias of few trials (epsilon squared, Kelley
1935): (between groups − (groups − 1) × mean square within) ÷ total. Interactions belong to no single parameter, so
the shares need not add up to one. Effects can be separated only where the trials vary more than one parameter.
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
# How many trials, fastest first, are listed.
ROWS = 200
LEAST_TRIALS = 5


@dataclass(frozen=True)
class TunedTrial:
    """Hold a correct kernel with its parameters."""

    number: int
    values: dict[str, TunableValue]
    time_us: float
    speedup: float | None


@dataclass(frozen=True)
class Importance:
    """Hold the share of the variation of log time that a parameter explains alone, from 0 to 1.

    `values` counts the values that were tried; `best` is the value with the smallest mean.
    """

    name: str
    share: float
    values: int
    best: TunableValue


@dataclass(frozen=True)
class TrialGroup:
    """Hold the trials of a run that vary the same parameters."""

    names: tuple[str, ...]
    trials: Sequence[TunedTrial]

    @property
    def key(self) -> str:
        """Return the name of the space in an address."""
        return ".".join(self.names)


def spaces_of(run: Run) -> list[TrialGroup]:
    """Group the run's trials by the parameters that they set, most trials first."""
    kernels = run.kernels.filter(evaluation__status=EvaluationStatus.CORRECT, evaluation__time_us__isnull=False)
    fields = ("number", "tunables", "evaluation__time_us", "evaluation__speedup")
    groups: dict[tuple[str, ...], list[TunedTrial]] = defaultdict(list)
    for row in kernels.exclude(tunables={}).order_by("-number").values_list(*fields)[:MOST]:
        trial = TunedTrial(*row)
        groups[tuple(sorted(trial.values))].append(trial)
    # Trials were read newest first because of the limit; show them in the order in which they were made.
    return sorted(
        (TrialGroup(names, rows[::-1]) for names, rows in groups.items()), key=lambda one: -len(one.trials)
    )


def fastest(space: TrialGroup, most: int) -> list[TunedTrial]:
    """Return at most `most` trials, fastest first."""
    return sorted(space.trials, key=lambda trial: trial.time_us)[:most]


def importances(space: TrialGroup) -> list[Importance]:
    """Return the importance of every parameter, most important first, or nothing for fewer than five trials."""
    if len(space.trials) < LEAST_TRIALS:
        return []
    logs = [math.log(trial.time_us) for trial in space.trials]
    return sorted((_importance(space, name, logs) for name in space.names), key=lambda one: -one.share)


def _importance(space: TrialGroup, name: str, logs: Sequence[float]) -> Importance:
    groups: dict[TunableValue, list[float]] = defaultdict(list)
    for trial, log in zip(space.trials, logs, strict=True):
        groups[trial.values[name]].append(log)
    mean = fmean(logs)
    total = sum((log - mean) ** 2 for log in logs)
    between = sum(len(found) * (fmean(found) - mean) ** 2 for found in groups.values())
    free = len(logs) - len(groups)
    # With one trial per value nothing is left to estimate the noise, so all variation counts as noise.
    within = (total - between) / free if free > 0 else total
    share = (between - (len(groups) - 1) * within) / total if total > 0 else 0.0
    best = min(groups, key=lambda value: fmean(groups[value]))
    # The bias correction can make a share slightly negative, which means that no effect was found.
    return Importance(name, max(0.0, share), len(groups), best)

"""Predict how long an evaluation will hold its device, from evaluations that have ended.

An evaluation has a fixed part (checks, sessions, the baseline) and one that grows with the kernel's own time, so its
device time is a line in that time: Theil-Sen, which one slow outlier does not move (Sen 1968).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from django.db.models import Q, QuerySet

from optimizer.models import Evaluation, EvaluationPurpose, EvaluationStatus, Run
from optimizer.queries.earlier_runs import newest_ids, others_of_its_campaign, shared
from runners.job import Effort

MOST = 40  # newest evaluations of a group that are looked at
FEWEST = 6  # evaluations from which a line is fitted; with fewer, the median is all that is known


@dataclass(frozen=True)
class DeviceTime:
    """Hold the expected device time of evaluations, in s: `fixed_s`, and `per_us` for every µs of the kernel's time.

    `typical_s` is the median, and `confirmation_s` that of confirmations. `source` says whose evaluations these are,
    of which there are `measured`.
    """

    typical_s: float
    confirmation_s: float
    fixed_s: float
    per_us: float
    measured: int
    source: str

    def seconds(self, time_us: float | None) -> float:
        """Return the expected seconds of a kernel that takes `time_us`, None where that is not predicted."""
        return self.typical_s if time_us is None else self.fixed_s + self.per_us * time_us


def device_time_of(run: Run) -> DeviceTime | None:
    """Return what evaluations of this run take, or else those of the team's runs with its problem and target.

    Return None where none has ended.
    """
    groups = ((Evaluation.objects.filter(kernel__run=run), "this run"), (on_the_same(run), "earlier runs"))
    for found, source in groups:
        if rows := _ended(found, Effort.FULL):
            return _fitted(rows, [device_s for device_s, _ in _ended(found, Effort.CONFIRM)], source)
    return None


def on_the_same(run: Run) -> QuerySet[Evaluation]:
    """Return the evaluations of the team's newest runs on the run's problem version and target.

    They are of runs that its readers may see. The other runs of its campaign are left out, since they must not learn
    from each other.
    """
    shown = shared(run) | Q(pk=run.pk)
    like = Run.objects.filter(
        shown, team=run.team_id, problem_version=run.problem_version_id, target=run.target_id
    ).exclude(pk__in=others_of_its_campaign(run))
    return Evaluation.objects.filter(kernel__run__in=newest_ids(like), target=run.target_id)


def _ended(found: QuerySet[Evaluation], effort: Effort) -> list[tuple[float, float]]:
    """Return device time in s and the kernel's time in µs of correct evaluations; failed ones end early."""
    # What was asked for outside the search, such as a campaign's settling, says nothing about its budget.
    timed = found.filter(
        effort=effort.value, purpose=EvaluationPurpose.SEARCH, status=EvaluationStatus.CORRECT, device_s__gt=0,
        time_us__gt=0,
    )  # fmt: skip
    # A duplicate has held no device.
    own = timed.filter(copied_from=None)
    # By run and number, which an index gives; by their own number, PostgreSQL reads evaluations of all runs.
    newest = own.order_by("-kernel__run", "-kernel__number", "-pk")[:MOST]
    return [(s, us) for s, us in newest.values_list("device_s", "time_us") if us is not None]


def _fitted(rows: Sequence[tuple[float, float]], confirmations: Sequence[float], source: str) -> DeviceTime:
    typical = median(device_s for device_s, _ in rows)
    slopes = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in combinations(rows, 2) if a[1] != b[1]]
    per_us = max(0.0, median(slopes)) if len(rows) >= FEWEST and slopes else 0.0
    fixed = max(0.0, median(device_s - per_us * time_us for device_s, time_us in rows))
    confirmation = median(confirmations) if confirmations else typical
    return DeviceTime(typical, confirmation, fixed, per_us, len(rows), source)

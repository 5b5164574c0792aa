"""Read what a campaign has found: one figure per cell, and the statistics of its configurations.

Only settled figures count. Until a problem is settled its cells are listed as open, so a page of a running campaign
shows progress and no result that may still change.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from django.db.models import F, FloatField, Func, JSONField, QuerySet
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce

from optimizer.models import (
    Campaign,
    CampaignConfiguration,
    CampaignState,
    CampaignTiming,
    EvaluationState,
    EvaluationStatus,
    RunState,
)
from optimizer.models.evaluation import CANDIDATE
from optimizer.queries import suite_statistics as statistics
from optimizer.queries.campaign_timings import problems_to_repeat
from optimizer.queries.intervals import Interval
from optimizer.queries.suite_statistics import Array, Band, Difference

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)
# Speedups for which the cost to reach them is listed.
GOALS = (1.0, 1.5, 2.0)
COSTS = ("evaluations", "tokens", "usd", "device_s")
_CELL = (
    "pk", "configuration_id", "problem_version_id", "name", "seed", "run_id", "is_skipped", "is_closed", "why",
    "run__state", "run__best_speedup",
    Coalesce("run__spent_evaluations", 0), Coalesce("run__spent_tokens", 0),
    Coalesce(Cast("run__spent_usd", FloatField()), 0.0), Coalesce("run__spent_device_s", 0.0), "is_behind",
)  # fmt: skip
_TIMING = (
    "cell_id", "baseline", "kernel__number", "evaluation__state", "evaluation__status", "evaluation__unconfirmed",
    "evaluation__speedup", "evaluation__speedup_low", "evaluation__speedup_high", "evaluation__time_us",
    "evaluation__roofline_share", "evaluation__failed_side", "evaluation__job__error",
)  # fmt: skip


_OPEN = frozenset(
    {None, EvaluationState.QUEUED.value, EvaluationState.RUNNING.value, EvaluationState.CANCELLED.value}
)
_JUDGING = frozenset(one.value for one in EvaluationStatus if one.judges_kernel)


class Timed(NamedTuple):
    """Hold one settled timing of a winner. `speedup` is None where it has none that counts.

    `failed_side` and `error` say whose failure ended it, and why its job was given up.
    """

    baseline: str
    kernel: int
    state: str
    status: str
    unconfirmed: bool
    speedup: float | None
    low: float | None
    high: float | None
    time_us: float | None
    roofline_share: float | None
    failed_side: str = ""
    error: str | None = None

    @property
    def is_measured(self) -> bool:
        """Return True where the timing has ended and judges the kernel."""
        return (
            self.state == EvaluationState.DONE
            and self.status in _JUDGING
            and (self.failed_side or CANDIDATE) == CANDIDATE
        )

    @property
    def is_correct(self) -> bool:
        """Return True for a kernel that passed again and whose claim the referee confirmed."""
        return self.status == EvaluationStatus.CORRECT and not self.unconfirmed

    @property
    def score(self) -> float:
        """Return the speedup, 0 for a kernel that failed the settling, NaN where nothing was measured."""
        if not self.is_measured:
            return math.nan
        return (self.speedup or math.nan) if self.is_correct else 0.0

    @property
    def why_unmeasured(self) -> str:
        """Return why an ended timing does not judge the kernel: the job's error, or else what failed."""
        if self.error:
            return self.error[:200]
        failed = f"the {self.failed_side} failed: " if self.failed_side else ""
        return f"{failed}{EvaluationStatus(self.status).label.lower()}"


class CellResult(NamedTuple):
    """Hold the outcome of one cell."""

    pk: int
    configuration: int
    problem: int
    name: str
    seed: int
    run: int | None
    is_skipped: bool
    is_closed: bool
    why: str
    state: str | None
    found: float | None
    evaluations: int
    tokens: int
    usd: float
    device_s: float
    is_behind: bool
    timed: Mapping[str, Timed]
    is_settled: bool

    def score(self, baseline: str) -> float:
        """Return the settled speedup over a baseline, 0 without a correct kernel, NaN where nothing counts.

        A run that was stopped by a person, by a limit or by the machine says nothing about its configuration, whether
        it had a kernel by then or not: shares would be too high if only those with a kernel counted.
        """
        if not self.counts:
            return math.nan
        if baseline in self.timed:
            return self.timed[baseline].score
        return math.nan if self.timed else 0.0

    @property
    def counts(self) -> bool:
        """Return True where the problem is settled and the run came to its own end, with as much as the others."""
        return self.is_settled and self.state == RunState.FINISHED and not self.is_behind

    @property
    def outcome(self) -> str:
        """Return the state in a word or two."""
        if self.is_skipped:
            return "skipped"
        if self.run is None:
            return "waiting"
        if not self.is_closed:
            # A run that has ended waits to be continued, or for the few seconds until its cell is closed.
            return "waiting" if self.state == RunState.FINISHED else str(self.state)
        if not self.is_settled:
            return "not settled"
        if self.state == RunState.STOPPED or self.is_behind:
            return "stopped early"
        if self.state != RunState.FINISHED:
            return str(self.state)
        if not self.timed:
            return "no correct kernel"
        if any(one.is_correct for one in self.timed.values()):
            return "settled"
        return "refuted" if any(one.is_measured for one in self.timed.values()) else "not measured"


@dataclass(frozen=True)
class Summary:
    """Hold the figures of one configuration against one baseline."""

    configuration: CampaignConfiguration
    problems: int
    success: Interval | None
    fast: Mapping[float, Interval | None]
    geomean: Interval | None
    geomean_all: Interval | None
    roofline: Interval | None

    @property
    def fast_1(self) -> Interval | None:
        """Return fast_1, by which suites are usually compared."""
        return self.fast[1.0]

    @property
    def fast_2(self) -> Interval | None:
        """Return fast_2."""
        return self.fast[2.0]


@dataclass(frozen=True)
class Results:
    """Hold everything that pages, reports and exports say about a campaign's outcome."""

    campaign: Campaign
    configurations: Sequence[CampaignConfiguration]
    cells: Sequence[CellResult]

    @cached_property
    def problems(self) -> list[tuple[int, str]]:
        """Return the problems as (version id, name), in the order of their names."""
        return _in_order((cell.problem, cell.name) for cell in self.cells)

    @cached_property
    def seeds(self) -> list[int]:
        """Return the seeds in ascending order."""
        return sorted({cell.seed for cell in self.cells})

    @cached_property
    def by_place(self) -> dict[tuple[int, int], list[CellResult]]:
        """Return the cells by (problem, configuration), in the order of their seeds."""
        found: dict[tuple[int, int], list[CellResult]] = defaultdict(list)
        for cell in sorted(self.cells, key=lambda cell: cell.seed):
            found[cell.problem, cell.configuration].append(cell)
        return found

    def scores(self, baseline: str) -> dict[str, Array]:
        """Return the scores of each configuration by its name, shape (problems, seeds)."""
        if baseline not in self._scores:  # a page asks for its curves, summaries and comparisons
            self._scores[baseline] = {
                one.name: self._matrix(one, lambda cell: cell.score(baseline)) for one in self.configurations
            }
        return self._scores[baseline]

    def summaries(self, baseline: str) -> list[Summary]:
        """Return the figures of every configuration against one baseline."""
        scores = self.scores(baseline)
        return [self._summary(one, scores[one.name], baseline) for one in self.configurations]

    def differences(self, baseline: str) -> list[Difference]:
        """Return every pair of configurations compared over the problems that both have."""
        return statistics.compare(self.scores(baseline))

    def curves(self, baseline: str) -> dict[str, list[Interval]]:
        """Return fast_p at `THRESHOLDS` by configuration."""
        return {name: statistics.fast_curve(scores, THRESHOLDS) for name, scores in self.scores(baseline).items()}

    def settled_problems(self) -> int:
        """Return how many problems are settled for every configuration that was run on them."""
        open_ones = {cell.problem for cell in self.cells if not cell.is_settled and not cell.is_skipped}
        return len({cell.problem for cell in self.cells if cell.is_settled} - open_ones)

    def unresolved(self) -> list[CellResult]:
        """Return the cells without a figure, with their reason: what a reader has to be told."""
        return [cell for cell in self.cells if cell.why or cell.outcome in {"refuted", "stopped early"}]

    def _summary(self, one: CampaignConfiguration, scores: Array, baseline: str) -> Summary:
        return Summary(
            configuration=one,
            problems=int(np.isfinite(scores).any(axis=1).sum()),
            success=statistics.success(scores),
            fast={threshold: statistics.fast(scores, threshold) for threshold in THRESHOLDS},
            geomean=statistics.geometric_mean(scores),
            geomean_all=statistics.geometric_mean(scores, 1.0),
            roofline=statistics.mean_share(self._matrix(one, lambda cell: _share(cell, baseline))),
        )

    def _matrix(self, one: CampaignConfiguration, value: Any) -> Array:
        found = np.full((len(self.problems), max(1, len(self.seeds))), np.nan)
        for row, column, cell in self._places[one.pk]:
            found[row, column] = value(cell)
        return found

    @cached_property
    def _scores(self) -> dict[str, dict[str, Array]]:
        return {}

    @cached_property
    def _places(self) -> dict[int, list[tuple[int, int, CellResult]]]:
        """Return the cells of each configuration with their row and column."""
        rows = {problem: row for row, (problem, _) in enumerate(self.problems)}
        columns = {seed: column for column, seed in enumerate(self.seeds)}
        found: dict[int, list[tuple[int, int, CellResult]]] = defaultdict(list)
        for cell in self.cells:
            found[cell.configuration].append((rows[cell.problem], columns[cell.seed], cell))
        return found


@dataclass(frozen=True)
class Costs:
    """Hold what it took one configuration to reach a speedup: the median over runs, by kind of cost."""

    configuration: CampaignConfiguration
    goal: float
    reached: Interval | None
    median: Mapping[str, Interval | None]


def results_of(campaign: Campaign, problems: Collection[int] | None = None) -> Results:
    """Read a campaign's cells and timings with three queries, or those of some problems, by version id.

    Until the campaign has finished, two more tell which problems are timed again.
    """
    cells, timings = campaign.cells.order_by("order"), campaign.timings.order_by()
    if problems is not None:
        cells = cells.filter(problem_version__in=problems)
        timings = timings.filter(cell__problem_version__in=problems)
    timed = _timings(timings)
    rows = list(cells.values_list(*_CELL))
    pending = _unsettled(campaign, rows, timed)
    nothing: Mapping[str, Timed] = {}
    # By position in `_CELL`: 0 the cell, 2 the problem.
    read = [_cell(row, timed.get(row[0], nothing), row[2] not in pending) for row in rows]
    return Results(campaign, list(campaign.configurations.all()), read)


def problems_of(campaign: Campaign) -> list[tuple[int, str]]:
    """Return the campaign's problems as (version id, name), in the order of their names."""
    return _in_order(campaign.cells.order_by().values_list("problem_version", "name").distinct())


def costs_of(campaign: Campaign, results: Results, goals: Sequence[float] = GOALS) -> list[Costs]:
    """Return the cost of each configuration to reach each goal, over the runs that have finished.

    The figures are those of the search; a run counts as having reached the goal only if its settled speedup did too.
    """
    steps = steps_by_cell(campaign, *COSTS)
    baseline = campaign.baselines[0]
    found = []
    for one in results.configurations:
        # Once for all goals: a large campaign has thousands of cells.
        scored = [(cell, cell.score(baseline)) for cell in results.cells if cell.configuration == one.pk]
        counted = [(cell, score) for cell, score in scored if math.isfinite(score)]
        found += [_costs(one, goal, counted, steps) for goal in goals]
    return found


def bands_of(campaign: Campaign, results: Results, kind: str, points: int = 40) -> dict[str, Band]:
    """Return the best-so-far band of each configuration against spending of one kind, over runs that have finished."""
    closed = (cell for cell in results.cells if cell.is_closed and not cell.is_behind)
    ended = [cell for cell in closed if cell.state == RunState.FINISHED]
    most = max((float(getattr(cell, kind)) for cell in ended), default=0.0)
    if most <= 0:
        return {}
    at = list(range(int(most) + 1)) if kind == "evaluations" and most <= 200 else list(np.linspace(0, most, points))
    steps = steps_by_cell(campaign, kind)
    found = {}
    for one in results.configurations:
        seeds: dict[int, list[list[tuple[float, float]]]] = defaultdict(list)
        for cell in ended:
            if cell.configuration == one.pk:
                seeds[cell.seed].append([(spent, speedup) for speedup, spent in steps.get(cell.pk, ())])
        if seeds:
            found[one.name] = statistics.band(list(seeds.values()), at)
    return found


def steps_by_cell(campaign: Campaign, *kinds: str) -> dict[int, list[tuple[float, ...]]]:
    """Return the improvements of every cell that has any, in their order: the speedup, then what was spent by then."""
    # PostgreSQL unpacks them: thousands of JSON texts would be parsed one by one here.
    step = Func(F("steps"), function="jsonb_array_elements", output_field=JSONField(), set_returning=True)
    columns = [Cast(KeyTextTransform(name, step), FloatField()) for name in ("speedup", *kinds)]
    found: dict[int, list[tuple[float, ...]]] = defaultdict(list)
    for cell, *values in campaign.cells.order_by().values_list("pk", *columns):
        found[cell].append(tuple(values))
    return found


def natural(name: str) -> tuple[Any, ...]:
    """Return a sort key by which 2_b comes before 10_a."""
    return tuple(
        (0, int(head), part) if (head := part.partition("_")[0]).isdecimal() else (1, 0, part)
        for part in name.split("/")
    )


def _in_order(named: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    return sorted(dict(named).items(), key=lambda pair: natural(pair[1]))


def _timings(rows: QuerySet[CampaignTiming]) -> dict[int, dict[str, Timed]]:
    found: dict[int, dict[str, Timed]] = defaultdict(dict)
    for cell, *rest in rows.values_list(*_TIMING):
        timed = Timed(*rest)
        found[cell][timed.baseline] = timed
    return found


def _cell(row: tuple[Any, ...], timed: Mapping[str, Timed], ended: bool) -> CellResult:
    # By position in `_CELL`: 7 whether the cell is closed, 8 why it gave no result.
    settled = row[7] and ended
    why = row[8] or (_why_unmeasured(timed) if settled else "")
    return CellResult._make((*row[:8], why, *row[9:], timed, settled))


def _why_unmeasured(timed: Mapping[str, Timed]) -> str:
    lacking = [one for one in timed.values() if not one.is_measured]
    return "; ".join(f"Not measured beside {one.baseline}: {one.why_unmeasured}" for one in lacking)


def _unsettled(
    campaign: Campaign, rows: Sequence[tuple[Any, ...]], timed: Mapping[int, dict[str, Timed]]
) -> set[int]:
    """Return the problems of which a run or a timing has not ended or is tried again; `rows` are those of `_CELL`.

    A problem counts as a whole: winners of which only some were timed were not timed together.
    """
    if campaign.settling_at is None:
        # A run without a kernel is known to have failed long before the others are timed, and must not count alone.
        return {row[2] for row in rows}
    waiting = {cell for cell, ones in timed.items() if any(one.state in _OPEN for one in ones.values())}
    again = set() if campaign.state == CampaignState.FINISHED else problems_to_repeat(campaign)
    # By position in `_CELL`: 6 whether the cell is skipped, 7 whether it is closed.
    return again | {row[2] for row in rows if row[0] in waiting or not (row[6] or row[7])}


def _share(cell: CellResult, baseline: str) -> float:
    one = cell.timed.get(baseline)
    if not cell.counts or one is None or not one.is_correct or not one.roofline_share:
        return math.nan
    return one.roofline_share


def _costs(
    one: CampaignConfiguration,
    goal: float,
    counted: Sequence[tuple[CellResult, float]],
    steps: Mapping[int, Sequence[tuple[float, ...]]],
) -> Costs:
    first = [_first(steps.get(cell.pk, ()), goal) if score >= goal else None for cell, score in counted]
    problems = {cell.problem for cell, _ in counted}
    share = defaultdict(list)
    for (cell, _), step in zip(counted, first, strict=True):
        share[cell.problem].append(step is not None)
    reached = statistics.wilson(sum(sum(hits) / len(hits) for hits in share.values()), len(problems))
    median = {
        kind: statistics.median_cost([None if step is None else step[1 + n] for step in first])
        for n, kind in enumerate(COSTS)
    }
    return Costs(one, goal, reached, median)


def _first(steps: Sequence[tuple[float, ...]], goal: float) -> tuple[float, ...] | None:
    return next((step for step in steps if step[0] >= goal), None)

"""Read the outcomes of several runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from optimizer.models import Evaluation, EvaluationState, EvaluationStatus, Run, User, VerdictChoice
from optimizer.queries.intervals import Interval, geometric_mean, share
from optimizer.queries.outcomes import JUDGED, SEARCHED

MOST = 8


@dataclass(frozen=True)
class Outcome:
    """Hold the outcome of one run, over its kernels without the seeds.

    A win is a kernel that is correct and faster than the baseline by more than the noise floor. The other three
    figures are KernelBench's (Ouyang et al. 2025, section 4): the shares that are correct, and correct and faster
    than the baseline at all (fast_1), in per cent; and the geometric mean of the speedups of the correct ones.
    Unconfirmed claims count as correct only. `device_us` and `call_us` are the best kernel's times; the latter exists
    on GPUs only.
    """

    run: Run
    evaluated: int
    wins: int
    success: Interval | None
    fast1: Interval | None
    geomean: Interval | None
    device_us: float | None = None
    call_us: float | None = None

    @property
    def usd_per_win(self) -> float | None:
        """Return the dollars of model calls per win."""
        return float(self.run.spent_usd) / self.wins if self.wins and self.run.spent_usd else None

    @property
    def evaluations_per_win(self) -> float | None:
        """Return the evaluations per win, the cost of a win where no model is paid."""
        return self.evaluated / self.wins if self.wins else None


def compared(user: User, wanted: Sequence[int]) -> list[Run]:
    """Return those of the runs that the person may see, in order, without wide columns, with one query."""
    # Runs that the person may not see are left out without a message, so that numbers reveal nothing.
    visible = Run.objects.visible_to(user).order_by().values("pk")
    wide = (
        Run.objects.for_dashboard().filter(pk__in=visible).defer("problem_version__bundle", "best_kernel__source")
    )
    found = wide.in_bulk(wanted)
    return [found[number] for number in wanted if number in found]


def on_same_ground(runs: Sequence[Run]) -> bool:
    """Return whether the speedups are comparable: problem, target, baseline and objective are the same."""
    return len({(run.problem_version_id, run.target_id, run.baseline, run.objective) for run in runs}) <= 1


def outcomes_of(runs: Sequence[Run]) -> list[Outcome]:
    """Return one outcome per run, in their order, with two queries."""
    rows: dict[int, list[Row]] = {run.pk: [] for run in runs}
    ended = Evaluation.objects.filter(first_of__run__in=runs, state=EvaluationState.DONE)
    tried = ended.filter(SEARCHED & JUDGED).order_by("pk")
    columns = tried.values_list("first_of__run", "status", "verdict", "unconfirmed", "speedup")
    for run_id, status, verdict, unconfirmed, speedup in columns:
        rows[run_id or 0].append(Row(status, verdict, unconfirmed, speedup))
    times = _times_of_best(runs)
    return [_with_times(_outcome(run, rows[run.pk]), times.get(run.pk, (None, None))) for run in runs]


def _with_times(outcome: Outcome, times: tuple[float | None, float | None]) -> Outcome:
    return replace(outcome, device_us=times[0], call_us=times[1])


def _times_of_best(runs: Sequence[Run]) -> dict[int, tuple[float | None, float | None]]:
    """Return device and call time of each run's best kernel, by run."""
    best = [run.best_kernel_id for run in runs if run.best_kernel_id]
    rows = Evaluation.objects.filter(first_of__in=best).values_list("first_of__run", "time_us", "call_us")
    return {run or 0: (device, call) for run, device, call in rows}


@dataclass(frozen=True)
class Row:
    """Hold one evaluated kernel."""

    status: str
    verdict: str
    unconfirmed: bool
    speedup: float | None


def _outcome(run: Run, rows: Sequence[Row]) -> Outcome:
    correct = [row for row in rows if row.status == EvaluationStatus.CORRECT]
    # An unconfirmed speedup may be a fault of measurement and would distort the mean.
    speedups = [row.speedup for row in correct if row.speedup and not row.unconfirmed]
    return Outcome(
        run,
        evaluated=len(rows),
        wins=sum(row.verdict == VerdictChoice.FASTER and not row.unconfirmed for row in correct),
        success=share(len(correct), len(rows)),
        fast1=share(sum(speedup > 1 for speedup in speedups), len(rows)),
        # The run's number as the seed: its bootstrap interval stays the same from page to page.
        geomean=geometric_mean(speedups, seed=run.pk),
    )

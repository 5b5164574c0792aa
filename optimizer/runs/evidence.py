"""Collect the measurements of a run's kernels that determine the leader, with one query.

A confirmation in cold processes replaces the kernel's first figures. Of several direct comparisons of the same two
kernels the newest confirmation counts, or otherwise the newest evaluation. A kernel that shares another's outcome
(same source, same binary) never ranks beside it: evidence about the copy is evidence about the original.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from optimizer.models import Evaluation, EvaluationPurpose, EvaluationState, EvaluationStatus, Run, VerdictChoice
from optimizer.models.evaluation import CANDIDATE
from optimizer.search.ranking import is_beaten, leader_of
from runners.job import Effort

_COLUMNS = (
    *("pk", "kernel_id", "kernel__number", "first_of_id", "effort", "status", "verdict", "unconfirmed", "time_us"),
    *("speedup", "speedup_low", "speedup_high", "opponent_id", "parent_verdict", "failed_side"),
    *("copied_from__kernel_id",),
)


@dataclass(frozen=True)
class Outcome:
    """Hold the columns of one finished evaluation that determine the leader."""

    pk: int
    kernel: int
    number: int
    first_of: int | None
    effort: str
    status: str
    verdict: str
    unconfirmed: bool
    time_us: float | None
    speedup: float | None
    low: float | None
    high: float | None
    opponent: int | None
    parent_verdict: str
    failed_side: str
    copy_of: int | None

    @property
    def is_confirmation(self) -> bool:
        """Return True for a measurement in cold processes."""
        return self.effort == Effort.CONFIRM

    @property
    def judges_kernel(self) -> bool:
        """Return False where the ending is not the kernel's own (see `Evaluation.judges_kernel`)."""
        return (
            bool(self.status)
            and EvaluationStatus(self.status).judges_kernel
            and self.failed_side in ("", CANDIDATE)
        )

    @property
    def is_correct(self) -> bool:
        """Return True for a correct kernel with a time."""
        return self.status == EvaluationStatus.CORRECT and self.time_us is not None


@dataclass(frozen=True)
class Standing:
    """Hold the figures by which one kernel ranks.

    `low` and `high` are the ends of the interval of its speedup over the common baseline. They come from `source`,
    the evaluation that counts; `settled` is True when this was a confirmation.
    """

    kernel: int
    number: int
    source: int
    settled: bool
    speedup: float | None
    low: float | None
    high: float | None
    time_us: float
    verdict: str

    @property
    def order(self) -> tuple[float, float, float, int]:
        """Sort by the lower bound; without one, by time. Equal figures go to the older kernel."""
        return (-(self.low or 0.0), -(self.speedup or 0.0), self.time_us, self.number)


@dataclass(frozen=True)
class Evidence:
    """Hold all evidence that determines the leader of a run.

    `refuted` are the ids of kernels whose claim a confirmation did not support. `beaten_by` maps a kernel to those
    proven faster in a direct comparison, and `originals` maps a copy to the kernel whose outcome it shares.
    `compared_cold` holds the pairs that were compared in cold processes.
    """

    standings: Sequence[Standing]
    beaten_by: Mapping[int, frozenset[int]]
    refuted: frozenset[int]
    originals: Mapping[int, int] = field(default_factory=dict)
    compared_cold: frozenset[frozenset[int]] = frozenset()

    @cached_property
    def by_kernel(self) -> Mapping[int, Standing]:
        """Return the standings by kernel id."""
        return {one.kernel: one for one in self.standings}

    def leader(self, *, settled: bool = False) -> Standing | None:
        """Return the standing of the leader; with `settled`, choose among the confirmed kernels where there are any."""
        among = [one for one in self.standings if one.settled or not settled] or self.standings
        kernel = leader_of([one.kernel for one in among], self.beaten_by)
        return None if kernel is None else self.by_kernel[kernel]

    def beaters(self, kernel: int) -> frozenset[int]:
        """Return the kernels proven faster than this one, or than the one whose outcome it shares."""
        return self.beaten_by.get(_original(kernel, self.originals), frozenset())

    def is_refuted(self, kernel: int) -> bool:
        """Return True when a confirmation did not support this kernel, or the one whose outcome it shares."""
        return _original(kernel, self.originals) in self.refuted

    def unbeaten(self) -> list[Standing]:
        """Return the kernels that no other one beats, best lower bound first."""
        contenders = set(self.by_kernel)
        return [one for one in self.standings if not is_beaten(one.kernel, self.beaten_by, contenders)]


def evidence_of(run: Run) -> Evidence:
    """Read the run's finished evaluations."""
    own = Evaluation.objects.filter(kernel__run=run, purpose=EvaluationPurpose.SEARCH)
    ended = own.filter(state=EvaluationState.DONE).exclude(effort=Effort.BUILD.value)
    rows = [Outcome(*row) for row in ended.order_by("pk").values_list(*_COLUMNS)]
    firsts = {row.kernel: row for row in rows if row.first_of is not None}
    cold = {row.kernel: row for row in rows if row.is_confirmation and row.judges_kernel}
    # The newest confirmation counts: `cold` keeps the last row of each kernel, in order of ids.
    refuted = frozenset(kernel for kernel, row in cold.items() if refutes(row, firsts.get(kernel)))
    # A seed whose outcome is from another run of the campaign has no original here beside which it would rank twice.
    copies = {row.kernel: row.copy_of for row in firsts.values() if row.copy_of is not None}
    originals = {kernel: original for kernel, original in copies.items() if original in firsts}
    ranked = [
        _standing(row, cold.get(kernel))
        for kernel, row in firsts.items()
        # A copy has the outcome of its original, so ranking both would list one measurement twice.
        if _may_rank(row) and kernel not in refuted and kernel not in originals
    ]
    pairs = _newest_comparisons(rows, originals)
    return Evidence(
        sorted(ranked, key=lambda one: one.order),
        _losers(pairs),
        refuted,
        originals,
        frozenset(pair for pair, row in pairs.items() if row.is_confirmation),
    )


def refutes(again: Outcome, first: Outcome | None) -> bool:
    """Return True when a confirmation speaks against the kernel: it failed, or a first verdict of `faster` is gone."""
    if not again.is_correct:
        return True
    claimed = first is not None and first.verdict == VerdictChoice.FASTER
    return claimed and again.verdict != VerdictChoice.FASTER


def _may_rank(row: Outcome) -> bool:
    return row.is_correct and not row.unconfirmed


def _standing(first: Outcome, again: Outcome | None) -> Standing:
    """Take the confirmed figures where a confirmation has any."""
    row = again if again is not None and again.is_correct and again.speedup else first
    return Standing(
        kernel=first.kernel,
        number=first.number,
        source=row.pk,
        settled=row is not first,
        speedup=row.speedup,
        low=row.low,
        high=row.high,
        time_us=row.time_us or first.time_us or 0.0,
        verdict=row.verdict,
    )


def _newest_comparisons(rows: Iterable[Outcome], originals: Mapping[int, int]) -> dict[frozenset[int], Outcome]:
    """Return, for every two kernels that were timed in turns, the comparison that counts."""
    found: dict[frozenset[int], Outcome] = {}
    compared = [row for row in rows if row.opponent is not None and row.parent_verdict and row.is_correct]
    # Later rows overwrite earlier ones, so the sort order decides which comparison counts.
    for row in sorted(compared, key=lambda row: (row.is_confirmation, row.pk)):
        pair = frozenset((_original(row.kernel, originals), _original(row.opponent or 0, originals)))
        if len(pair) == 2:
            found[pair] = row
    return {pair: _renamed(row, originals) for pair, row in found.items()}


def _renamed(row: Outcome, originals: Mapping[int, int]) -> Outcome:
    opponent = _original(row.opponent or 0, originals)
    return replace(row, kernel=_original(row.kernel, originals), opponent=opponent)


def _original(kernel: int, originals: Mapping[int, int]) -> int:
    seen: set[int] = set()
    # `seen` ends the loop should two rows name each other.
    while kernel in originals and kernel not in seen:
        seen.add(kernel)
        kernel = originals[kernel]
    return kernel


def _losers(pairs: Mapping[frozenset[int], Outcome]) -> dict[int, frozenset[int]]:
    beaten: dict[int, set[int]] = defaultdict(set)
    for row in pairs.values():
        if row.opponent is not None and row.parent_verdict == VerdictChoice.SLOWER:
            beaten[row.kernel].add(row.opponent)
        elif row.opponent is not None and row.parent_verdict == VerdictChoice.FASTER:
            beaten[row.opponent].add(row.kernel)
    return {kernel: frozenset(others) for kernel, others in beaten.items()}

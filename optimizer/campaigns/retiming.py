"""Advance a round of the regression watch, and tell people of changes, once, after a re-run.

A kernel has changed if its speedup over the same baseline left the noise floor of both measurements and their
intervals do not overlap. A first change is only a reason to measure again; both timings must say the same. Speedups
and not times are compared, because the baseline is timed alongside: what slows the whole machine changes neither.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from optimizer.events.notify import NewNotification, do_notify
from optimizer.models import (
    Evaluation,
    EvaluationPurpose,
    EvaluationState,
    EvaluationStatus,
    NotificationKind,
    RetimeRound,
    RetimeVerdict,
    Retiming,
)
from optimizer.queries.timing import noise_floor_from
from optimizer.runs.dispatch import dispatch_again
from optimizer.runs.locking import lock_run
from runners.job import Baseline

# The least change that is ever reported, whatever a machine's noise floor says.
LEAST_CHANGE = 1.02


@dataclass(frozen=True)
class Judgement:
    """Hold what one new measurement says: the verdict, new / old speedup, and a sentence."""

    verdict: RetimeVerdict
    ratio: float | None
    text: str


def advance_retiming(round_id: int) -> bool:
    """Take the next steps of the round. Return False where another process holds it."""
    with transaction.atomic():
        free = RetimeRound.objects.select_for_update(of=("self",), skip_locked=True)
        found = free.select_related("team", "target").filter(pk=round_id, finished_at=None).first()
        if found is None:
            return not RetimeRound.objects.filter(pk=round_id, finished_at=None).exists()
        if not _advance(found):
            found.finished_at = timezone.now()
        found.advanced_at = timezone.now()
        found.save(update_fields=["finished_at", "advanced_at"])
    return True


def judge(reference: Evaluation, again: Evaluation) -> Judgement:
    """Compare a new measurement with the one of the release."""
    if again.state != EvaluationState.DONE or not again.judges_kernel:
        return Judgement(RetimeVerdict.UNKNOWN, None, "It could not be measured here.")
    if again.status != EvaluationStatus.CORRECT:
        label = EvaluationStatus(again.status).label.lower()
        return Judgement(RetimeVerdict.BROKEN, None, f"It is {label} now.")
    if not (reference.speedup and again.speedup and reference.speedup_low and reference.speedup_high):
        return Judgement(RetimeVerdict.UNKNOWN, None, "No speedup to compare.")
    ratio = again.speedup / reference.speedup
    floor = max(LEAST_CHANGE, _floor(reference), _floor(again))
    text = f"{again.speedup:.2f}× over {again_baseline(again)}, {reference.speedup:.2f}× when it was released"
    if ratio < 1 / floor and (again.speedup_high or again.speedup) < reference.speedup_low:
        return Judgement(RetimeVerdict.SLOWER, ratio, text)
    if ratio > floor and (again.speedup_low or again.speedup) > reference.speedup_high:
        return Judgement(RetimeVerdict.FASTER, ratio, text)
    return Judgement(RetimeVerdict.SAME, ratio, text)


def again_baseline(evaluation: Evaluation) -> str:
    """Return the baseline that was timed alongside, in words."""
    return evaluation.kernel.run.baseline.replace("_", " ")


def _advance(found: RetimeRound) -> bool:
    """Ask for what is missing and judge what has ended. Return whether something is still open."""
    rows = found.retimings.filter(verdict="").select_related(
        "kernel__run", "reference", "first__kernel__run", "second__kernel__run"
    )
    # A list, not a generator: `any` would leave the kernels after the first open one without their turn.
    still_open = [_follow(row) for row in rows]
    return any(still_open)


def _follow(row: Retiming) -> bool:
    """Take the next step of one kernel. Return whether it is still open."""
    if row.first is None:
        row.first = _time(row)
        row.save(update_fields=["first"])
        return True
    if _is_open(row.first) or (row.second is not None and _is_open(row.second)):
        return True
    first = judge(row.reference, row.first)
    if first.verdict.is_change and row.second is None:
        # Before anybody is alarmed: a single bad moment of a machine changes one measurement, not two.
        row.second = _time(row)
        row.save(update_fields=["second"])
        return True
    last = first if row.second is None else _together(first, judge(row.reference, row.second))
    row.verdict, row.ratio, row.text = last.verdict, last.ratio, last.text[:300]
    row.save(update_fields=["verdict", "ratio", "text"])
    if last.verdict.is_change:
        _tell(row, last)
    return False


def _together(first: Judgement, second: Judgement) -> Judgement:
    if first.verdict == second.verdict:
        return second
    if second.verdict == RetimeVerdict.UNKNOWN:
        return second
    if first.verdict.is_alarm and second.verdict.is_alarm:
        # One says slower and the other wrong: both agree that something is amiss.
        return first if first.verdict == RetimeVerdict.BROKEN else second
    return Judgement(RetimeVerdict.SAME, second.ratio, f"The first change was not confirmed. {second.text}")


def _time(row: Retiming) -> Evaluation:
    run = lock_run(row.run_id)
    return dispatch_again(run, row.kernel, EvaluationPurpose.RETIMING, Baseline(run.baseline))


def _is_open(evaluation: Evaluation) -> bool:
    return not EvaluationState(evaluation.state).is_terminal


def _floor(evaluation: Evaluation) -> float:
    floor = noise_floor_from(evaluation.result.get("noise_floor"))
    return floor.ratio if floor is not None else 1.0


def _tell(row: Retiming, found: Judgement) -> None:
    """Tell the team's members once of each change against the same reference, however often it is seen again.

    A change that was gone in between is a new one.
    """
    run = row.kernel.run
    text = f"{run} #{row.kernel.number}, a released kernel: {found.verdict.label.lower()}. {found.text}"
    key = f"watch-{row.kernel_id}-{row.reference_id}-{found.verdict.value}-{_last_unchanged(row)}"
    page = reverse("release_page", args=[run.pk, row.kernel.number])
    new = NewNotification(NotificationKind.WATCH, key, text, page, run)
    do_notify(run.team.members.all(), new)


def _last_unchanged(row: Retiming) -> int:
    """Return the newest earlier round that found the kernel unchanged against the same reference, or 0."""
    earlier = Retiming.objects.filter(kernel=row.kernel_id, reference=row.reference_id, round__lt=row.round_id)
    newest = (
        earlier.filter(verdict=RetimeVerdict.SAME).order_by("-round").values_list("round_id", flat=True).first()
    )
    return newest or 0

"""Which kernel leads, and whether its claim stands when it is measured again in cold processes.

The leader is the correct kernel with the largest speedup over the baseline that was timed beside it, so that a quiet
moment makes no winner; where nothing is paired, the one with the least geometric mean of its case medians.
With `confirm` set, a run does not end before its leader was measured a second time (effort `confirm`); where that
does not support the first verdict the kernel is refuted, said so in an event, and the next one is tried,
`MAX_CONFIRMATIONS` times at most. The headline figure is the confirmed interval as soon as there is one.
"""

from __future__ import annotations

from django.db.models import F, QuerySet

from optimizer.live.payloads import BestChanged, BestRefuted, RunNoted
from optimizer.live.publish import record
from optimizer.loop.dispatch import dispatch
from optimizer.models import Evaluation, EvaluationState, EvaluationStatus, Kernel, Run, VerdictChoice
from runners.job import Effort

MAX_CONFIRMATIONS = 3
FASTEST_FIRST = (F("evaluation__speedup").desc(nulls_last=True), "evaluation__time_us", "number")


def update_best(run: Run) -> None:
    """Recompute the leader from the rows and record what changed. Call under the run's lock."""
    leader = _leader(run)
    if leader is not None and _lead(run, leader, figures := _confirmation_of(leader) or leader.evaluation):
        record(run, _changed(leader, figures))


def mend_best(run: Run) -> None:
    """The same for a run that ended under the rules of an older version: whoever may not lead any more does not, and
    its followers are not told of a record that is none. Call under the run's lock."""
    leader = _leader(run)
    figures = (_confirmation_of(leader) or leader.evaluation) if leader else None
    if _lead(run, leader, figures):
        now = f"kernel #{leader.number} leads" if leader else "no kernel leads"
        record(run, RunNoted(text=f"Ranked anew by the rules of this version: {now}."))


def judge_confirmation(run: Run, confirmation: Evaluation) -> None:
    """Say so when a confirmation that has just ended refutes its kernel. Call under the run's lock."""
    kernel = confirmation.kernel
    if is_refuted(kernel):
        reason = _why_refuted(confirmation)
        record(run, BestRefuted(number=kernel.number, kernel=kernel.pk, reason=reason))


def needs_confirmation(run: Run) -> Kernel | None:
    """The leader, when nothing has confirmed it yet and a confirmation may still be asked for."""
    leader = run.best_kernel
    if leader is None or confirmations(run).count() >= MAX_CONFIRMATIONS:
        return None
    if leader.evaluation.verdict != VerdictChoice.FASTER:
        return None
    return None if confirmations(run).filter(kernel=leader).exists() else leader


def confirm(run: Run, kernel: Kernel) -> Evaluation:
    """Have the kernel measured again in cold processes."""
    return dispatch(run, kernel, Effort.CONFIRM, first=False)


def confirmations(run: Run) -> QuerySet[Evaluation]:
    """The run's confirming evaluations that were not cancelled."""
    found = Evaluation.objects.filter(kernel__run=run, effort=Effort.CONFIRM.value)
    return found.exclude(state=EvaluationState.CANCELLED)


def is_refuted(kernel: Kernel) -> bool:
    """True when the newest confirmation speaks against a first verdict of `faster`."""
    newest = _newest_confirmation(kernel)
    if newest is None or newest.status == EvaluationStatus.INFRA_ERROR:
        return False
    claimed = kernel.evaluation.verdict == VerdictChoice.FASTER
    return newest.status != EvaluationStatus.CORRECT or (claimed and newest.verdict != VerdictChoice.FASTER)


def refuted(run: Run) -> frozenset[int]:
    """The run's kernels (ids) that were measured again and did not stand."""
    again = run.kernels.filter(pk__in=confirmations(run).values("kernel_id")).select_related("evaluation")
    return frozenset(kernel.pk for kernel in again if is_refuted(kernel))


def _leader(run: Run) -> Kernel | None:
    """The fastest correct kernel whose claim is confirmed and not refuted; ties go to the older."""
    out = refuted(run)
    ranked = run.kernels.rankable().select_related("evaluation").order_by(*FASTEST_FIRST)
    return next((kernel for kernel in ranked if kernel.pk not in out), None)


def _lead(run: Run, leader: Kernel | None, figures: Evaluation | None) -> bool:
    """Have it lead with these figures; False where it did."""
    names = ("best_kernel_id", "best_speedup", "best_speedup_low", "best_speedup_high")
    before = [getattr(run, name) for name in names]
    run.best_kernel = leader
    run.best_speedup = figures.speedup if figures else None
    run.best_speedup_low = figures.speedup_low if figures else None
    run.best_speedup_high = figures.speedup_high if figures else None
    if before == [getattr(run, name) for name in names]:
        return False
    run.save(update_fields=["best_kernel", "best_speedup", "best_speedup_low", "best_speedup_high"])
    return True


def _newest_confirmation(kernel: Kernel) -> Evaluation | None:
    done = kernel.evaluations.filter(effort=Effort.CONFIRM.value, state=EvaluationState.DONE)
    return done.order_by("-pk").first()


def _confirmation_of(kernel: Kernel) -> Evaluation | None:
    newest = _newest_confirmation(kernel)
    return newest if newest and newest.status == EvaluationStatus.CORRECT and newest.speedup else None


def _changed(kernel: Kernel, figures: Evaluation) -> BestChanged:
    return BestChanged(
        number=kernel.number,
        kernel=kernel.pk,
        time_us=kernel.evaluation.time_us or 0.0,
        speedup=figures.speedup,
        speedup_low=figures.speedup_low,
        speedup_high=figures.speedup_high,
        confirmed=figures.pk != kernel.evaluation.pk,
        announce=figures.verdict == VerdictChoice.FASTER,
    )


def _why_refuted(confirmation: Evaluation) -> str:
    if confirmation.status != EvaluationStatus.CORRECT:
        return f"Measured again it was {EvaluationStatus(confirmation.status).label.lower()}."
    return "Measured again it was not faster than the baseline."

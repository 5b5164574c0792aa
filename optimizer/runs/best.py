"""Record which kernel leads a run, and what happens to a leader that a second measurement does not support.

The leader follows from evidence alone (`optimizer.runs.evidence`, `optimizer.search.ranking`): it has the largest
lower bound of the speedup over the common baseline, unless a direct comparison proves another kernel faster. A leader
that a confirmation refutes, or proves slower than its opponent, steps down, and an event says so. The headline figure
is the confirmed interval as soon as there is one.
"""

from __future__ import annotations

from django.db.models import QuerySet

from optimizer.events.payloads import BestChanged, BestRefuted, RunNoted
from optimizer.events.record import record
from optimizer.models import (
    Evaluation,
    EvaluationPurpose,
    EvaluationState,
    EvaluationStatus,
    Kernel,
    Release,
    Run,
    VerdictChoice,
)
from optimizer.runs.evidence import Evidence, Standing, evidence_of
from runners.job import Effort


def update_best(run: Run, *, settled: bool = False) -> None:
    """Recompute the leader from the rows and record a change. Call under the run's lock.

    With `settled`, and in a run that has ended, choose among the confirmed kernels where there are any.
    """
    leader = evidence_of(run).leader(settled=settled or run.state_choice.is_terminal)
    if _lead(run, leader) and leader is not None:
        # Also for a leader that is not announced: approvals compared the kernel with what led before.
        Release.objects.supersede(run.pk, leader.kernel)
        record(run, _changed(leader))


def rerank_best(run: Run) -> None:
    """Re-rank a run that ended under the rules of an older version. Call under the run's lock.

    Followers are not notified, because no new record was set.
    """
    leader = evidence_of(run).leader(settled=True)
    if _lead(run, leader):
        now = f"kernel #{leader.number} leads" if leader else "no kernel leads"
        record(run, RunNoted(text=f"Ranked anew by the rules of this version: {now}."))


def judge_confirmation(run: Run, confirmation: Evaluation) -> None:
    """Record that a kernel steps down when a confirmation which has just ended speaks against it.

    Call under the run's lock and before `update_best`, which replaces the leader that the event names.
    """
    evidence = evidence_of(run)
    kernel, opponent = confirmation.kernel, confirmation.opponent
    # A refuted claim matters even for a kernel that does not lead, because it can no longer rank.
    if evidence.is_refuted(kernel.pk):
        _step_down(run, kernel, _why_refuted(confirmation))
    elif opponent is not None and _leader_changes(run, evidence):
        _yield(run, kernel, opponent, confirmation)


def confirmations(run: Run) -> QuerySet[Evaluation]:
    """Return the run's confirming evaluations that were not cancelled."""
    own = Evaluation.objects.filter(kernel__run=run, purpose=EvaluationPurpose.SEARCH)
    found = own.filter(effort=Effort.CONFIRM.value)
    return found.exclude(state=EvaluationState.CANCELLED)


def _yield(run: Run, kernel: Kernel, opponent: Kernel, confirmation: Evaluation) -> None:
    """Record that the leader steps down where this direct comparison proves the other kernel faster."""
    verdict = confirmation.parent_verdict
    if verdict == VerdictChoice.SLOWER and run.best_kernel_id == kernel.pk:
        reason = f"In cold processes it was slower than #{opponent.number}{_interval(confirmation)}."
        _step_down(run, kernel, reason, opponent)
    # The confirmed kernel challenged the leader and won.
    elif verdict == VerdictChoice.FASTER and run.best_kernel_id == opponent.pk:
        reason = f"In cold processes #{kernel.number} was faster{_interval(confirmation)}."
        _step_down(run, opponent, reason, kernel)


def _leader_changes(run: Run, evidence: Evidence) -> bool:
    leader = evidence.leader()
    return leader is not None and leader.kernel != run.best_kernel_id


def _lead(run: Run, leader: Standing | None) -> bool:
    """Store the leader and its figures. Return False where nothing changed."""
    # An unchanged leader is no event: most evaluations change nothing, and followers need not hear of them.
    names = ("best_kernel_id", "best_speedup", "best_speedup_low", "best_speedup_high")
    now = (leader.kernel, leader.speedup, leader.low, leader.high) if leader else (None, None, None, None)
    if tuple(getattr(run, name) for name in names) == now:
        return False
    for name, value in zip(names, now, strict=True):
        setattr(run, name, value)
    run.save(update_fields=["best_kernel", "best_speedup", "best_speedup_low", "best_speedup_high"])
    return True


def _changed(leader: Standing) -> BestChanged:
    return BestChanged(
        number=leader.number,
        kernel=leader.kernel,
        time_us=leader.time_us,
        speedup=leader.speedup,
        speedup_low=leader.low,
        speedup_high=leader.high,
        confirmed=leader.settled,
        # Followers are told of a record only when it beats the baseline by more than the noise.
        announce=leader.verdict == VerdictChoice.FASTER,
    )


def _step_down(run: Run, kernel: Kernel, reason: str, by: Kernel | None = None) -> None:
    led = run.best_kernel_id == kernel.pk
    number = by.number if by is not None else None
    record(run, BestRefuted(number=kernel.number, kernel=kernel.pk, reason=reason, by=number, led=led))


def _why_refuted(confirmation: Evaluation) -> str:
    if confirmation.status != EvaluationStatus.CORRECT:
        return f"Measured again it was {EvaluationStatus(confirmation.status).label.lower()}."
    return "Measured again it was not faster than the baseline."


def _interval(confirmation: Evaluation) -> str:
    """Return the interval of a direct comparison in parentheses, as `": 0.93× (0.91–0.94)"`."""
    figures = (confirmation.parent_speedup, confirmation.parent_speedup_low, confirmation.parent_speedup_high)
    if any(figure is None for figure in figures):
        return ""
    return ": {:.2f}× ({:.2f}–{:.2f})".format(*figures)

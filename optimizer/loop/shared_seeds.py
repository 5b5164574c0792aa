"""Let the runs of a campaign share the measurements of their seeds.

All runs of a campaign on one problem begin with the same seeds, against the same baseline and for the same time, so
one of them measures a seed and the others take over the outcome. A run looks at the rows of others and changes its
own alone, under its own lock. Runs that begin at the same moment take turns, so that one of them measures a seed.
"""

from __future__ import annotations

from functools import partial

from optimizer.events.record import record
from optimizer.models import CampaignCell, Evaluation, EvaluationState, Kernel, Run, RunState
from optimizer.queries.earlier_runs import others_of_its_campaign
from optimizer.queries.outcomes import waiting_for_another_run
from optimizer.runs import best
from optimizer.runs.dispatch import begin_evaluation, is_profiled
from optimizer.runs.evaluation import do_copy_outcome, finished
from optimizer.runs.kernels import may_be_shared
from optimizer.runs.locking import patiently, try_advisory_lock
from runners.job import Effort

# A turn takes milliseconds.
TURN_S = 5.0


def begin_or_wait(run: Run, kernel: Kernel) -> Evaluation:
    """Begin the seed's first evaluation, or wait for that of another run of the campaign.

    An evaluation that waits has no job, and names in `copied_from` the one for which it waits. Call under the run's
    lock.
    """
    _wait_for_turn(run)
    original = _measured_elsewhere(run, kernel)
    if original is None:
        return begin_evaluation(run, kernel)
    return Evaluation.objects.create(
        kernel=kernel, target=run.target, first_of=kernel, effort=Effort.FULL.value, copied_from=original
    )


def take_over_seeds(run: Run) -> None:
    """Take over the seeds that other runs have measured since. Call under the run's lock.

    Where the other run has lost a seed (it was cancelled, failed for a reason outside the kernel, or its run no longer
    goes on), this one measures it, or waits for a third.
    """
    waiting = waiting_for_another_run(run)
    # Nearly always nothing waits. Asking this first spares a query for the columns of five tables, a sixth of a step's
    # time.
    if not waiting.exists():
        return
    for evaluation in waiting.select_related("kernel", "copied_from__kernel__run").order_by("pk"):
        original = evaluation.copied_from
        if original is not None and _is_certain(original):
            if original.state == EvaluationState.DONE:
                _take_over(run, evaluation, original)
        else:
            evaluation.delete()
            begin_or_wait(run, evaluation.kernel)
    best.update_best(run)


def _wait_for_turn(run: Run) -> None:
    """Keep other runs of the campaign on this problem from looking for seeds until the end of this transaction.

    They hold their own runs' locks while they wait, so whoever locks several runs locks them before. A worker that is
    frozen in its turn keeps nobody waiting for longer than `TURN_S`; a seed may be measured twice then.
    """
    for campaign in CampaignCell.objects.filter(run=run).values_list("campaign_id", flat=True):
        patiently(partial(_begin_turn, campaign, run.problem_version_id), TURN_S)


def _begin_turn(campaign_id: int, problem_version_id: int) -> bool:
    name = f"seeds of problem version {problem_version_id} in campaign {campaign_id}"
    return try_advisory_lock("pg_try_advisory_xact_lock", name)


def _take_over(run: Run, evaluation: Evaluation, original: Evaluation) -> None:
    do_copy_outcome(evaluation, original)
    reason = f"Measured once for all runs of the campaign on this problem, by run {original.kernel.run_id}."
    evaluation.result["reasons"] = [*original.result.get("reasons", []), reason]
    evaluation.save(update_fields=["result"])
    record(run, finished(run, evaluation))


def _measured_elsewhere(run: Run, kernel: Kernel) -> Evaluation | None:
    """Return the first evaluation of the same source by another run of the campaign that is certain to have a result
    for both, or None.

    Runs that profile their kernels share with each other only: a profile is part of what agents read.
    """
    same = Evaluation.objects.filter(
        first_of__run__in=others_of_its_campaign(run),
        first_of__run__problem_version=run.problem_version_id,
        first_of__content_hash=kernel.content_hash,
        copied_from=None,
    )
    wanted = is_profiled(run)
    candidates = same.select_related("kernel__run__target").order_by("pk")
    return next((one for one in candidates if is_profiled(one.kernel.run) == wanted and _is_certain(one)), None)


def _is_certain(evaluation: Evaluation) -> bool:
    """Return True for an outcome that other runs may share, or one that is on its way."""
    if EvaluationState(evaluation.state).is_terminal:
        return evaluation.state == EvaluationState.DONE and may_be_shared(evaluation)
    return evaluation.kernel.run.state == RunState.RUNNING

"""Equal binaries: what a run has evaluated already is not executed again, however its text looks.

The third check of novelty, after the same text and the same normalised text (`optimizer.search.machinery.novelty`).
Each job carries the digests of what the run has evaluated; the harness compares after its build and stops there. Its
word is believed only for a digest and an evaluation that the job itself had named. Two that are under way at the same
time are both measured.
"""

from __future__ import annotations

from optimizer.models import Evaluation, EvaluationState, EvaluationStatus, Job, Run
from optimizer.models.evaluation import CANDIDATE
from runners.job import JobResult

MOST_KNOWN = 500
"""The newest artefacts that a job is told of."""
KNOWN_BY = (
    EvaluationStatus.CORRECT,
    EvaluationStatus.INCORRECT,
    EvaluationStatus.CRASHED,
    EvaluationStatus.SUSPECT,
)
"""Outcomes that the same binary has again. Time-outs and want of memory may have been the machine's doing."""


def known_artefacts(run: Run) -> dict[str, str]:
    """Digest → id of the run's first evaluation of it. A claim that was not confirmed is worth another look."""
    ended = Evaluation.objects.filter(first_of__run=run, state=EvaluationState.DONE, status__in=KNOWN_BY)
    measured = (
        ended.filter(unconfirmed=False, failed_side__in=("", CANDIDATE)).exclude(artefact_hash="").exclude(job=None)
    )
    newest = measured.order_by("-pk").values_list("artefact_hash", "pk")[:MOST_KNOWN]
    return {digest: str(pk) for digest, pk in newest}


def is_sound(job: Job, result: JobResult) -> bool:
    """False where a result names as its twin what the job did not name for that digest."""
    return result.duplicate_of is None or _named(job, result) == result.duplicate_of


def twin_named(result: JobResult) -> Evaluation | None:
    """The evaluation whose outcome a sound result shares; None for one that was measured itself."""
    return Evaluation.objects.select_related("kernel").get(pk=result.duplicate_of) if result.duplicate_of else None


def _named(job: Job, result: JobResult) -> str | None:
    known: dict[str, str] = job.spec.get("known_artefacts", {})
    return known.get(result.build.artefact_hash or "") if result.build else None

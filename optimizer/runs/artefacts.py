"""Recognise equal binaries, so that a run does not execute a kernel twice however its source looks.

This is the third novelty check, after equal text and equal normalised text (`optimizer.search.machinery.novelty`).
Each job carries the digests of the binaries that the run has evaluated. The harness compares after its build and
stops there if one matches. Its claim is accepted only for a digest and an evaluation that the job itself named. Two
equal kernels that are under way at the same time are both measured.
"""

from __future__ import annotations

from django.db.models import Q

from optimizer.models import Evaluation, EvaluationState, EvaluationStatus, Job, Run
from optimizer.models.evaluation import CANDIDATE
from runners.job import JobResult

# Number of newest artefacts that are sent with a job.
MOST_KNOWN = 500
# Outcomes that the same binary will have again. Lack of memory may be the machine's fault; so may a timeout, unless the
# harness says that the candidate exceeded its limit.
KNOWN_BY = (
    EvaluationStatus.CORRECT,
    EvaluationStatus.INCORRECT,
    EvaluationStatus.CRASHED,
    EvaluationStatus.SUSPECT,
)


def known_artefacts(run: Run) -> dict[str, str]:
    """Map the digest of each evaluated binary to the id of the run's first evaluation of it.

    Unconfirmed claims are left out, because they deserve another measurement.
    """
    known = Q(status__in=KNOWN_BY) | Q(status=EvaluationStatus.TIMEOUT, failed_side=CANDIDATE)
    ended = Evaluation.objects.filter(known, first_of__run=run, state=EvaluationState.DONE)
    # Evaluations without a job are duplicates themselves; the original is listed once.
    measured = (
        ended.filter(unconfirmed=False, failed_side__in=("", CANDIDATE)).exclude(artefact_hash="").exclude(job=None)
    )
    newest = measured.order_by("-pk").values_list("artefact_hash", "pk")[:MOST_KNOWN]
    return {digest: str(pk) for digest, pk in newest}


def is_sound(job: Job, result: JobResult) -> bool:
    """Return False where a result names an original evaluation that the job did not name for that digest."""
    return result.duplicate_of is None or _named(job, result) == result.duplicate_of


def original_of(result: JobResult) -> Evaluation | None:
    """Return the evaluation whose outcome a sound result shares, or None for a result that was measured itself."""
    return Evaluation.objects.select_related("kernel").get(pk=result.duplicate_of) if result.duplicate_of else None


def _named(job: Job, result: JobResult) -> str | None:
    known: dict[str, str] = job.spec.get("known_artefacts", {})
    return known.get(result.build.artefact_hash or "") if result.build else None

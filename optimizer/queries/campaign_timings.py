"""Tell which timings of a campaign's settling gave no measurement, and which of those were tried again already."""

from __future__ import annotations

from django.db.models import Count, F, Q, QuerySet

from optimizer.models import CampaignTiming, EvaluationPurpose, EvaluationState, EvaluationStatus
from optimizer.models.evaluation import CANDIDATE

_SAYS_NOTHING = Q(evaluation__status__in=[one.value for one in EvaluationStatus if not one.judges_kernel]) | ~Q(
    evaluation__failed_side__in=("", CANDIDATE)
)


def unmeasured(timings: QuerySet[CampaignTiming]) -> QuerySet[CampaignTiming]:
    """Return the timings that have ended without judging their kernel: the machine or the baseline failed."""
    return timings.filter(_SAYS_NOTHING, evaluation__state=EvaluationState.DONE)


def to_repeat(timings: QuerySet[CampaignTiming]) -> QuerySet[CampaignTiming]:
    """Return the timings without a measurement that were tried only once.

    A kernel belongs to one cell, so more evaluations than baselines mean that its problem was timed before.
    """
    settling = Q(kernel__evaluations__purpose=EvaluationPurpose.SETTLING)
    return (
        unmeasured(timings)
        .annotate(
            tried=Count("kernel__evaluations", filter=settling, distinct=True),
            planned=Count("cell__timings", distinct=True),
        )
        .filter(tried__lte=F("planned"))
    )

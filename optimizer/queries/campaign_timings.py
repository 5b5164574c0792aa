"""Tell which problems of a campaign's settling have to be timed again."""

from __future__ import annotations

from django.db.models import Count, F, Q, QuerySet

from optimizer.models import Campaign, CampaignTiming, EvaluationPurpose, EvaluationState, EvaluationStatus
from optimizer.models.evaluation import CANDIDATE

# A problem that lacks a measurement is timed so often, and one whose timings come from several workers so often.
UNMEASURED_ROUNDS, SCATTERED_ROUNDS = 2, 5
_SAYS_NOTHING = Q(evaluation__status__in=[one.value for one in EvaluationStatus if not one.judges_kernel]) | ~Q(
    evaluation__failed_side__in=("", CANDIDATE)
)


def problems_to_repeat(campaign: Campaign) -> set[int]:
    """Return the problems, by version id, whose ended timings do not suffice and which are timed again.

    A measurement is lacking where the machine or the baseline failed, or the timings come from several workers. The
    rounds are limited, so that a campaign ends wherever the fault lies.
    """
    ended = campaign.timings.filter(evaluation__state=EvaluationState.DONE)
    lacking = _timed_less_than(ended.filter(_SAYS_NOTHING), UNMEASURED_ROUNDS)
    workers = Count("evaluation__job__worker", distinct=True)
    problems = ended.order_by().values("cell__problem_version_id").annotate(workers=workers).filter(workers__gt=1)
    mixed = ended.filter(cell__problem_version__in=problems.values("cell__problem_version_id"))
    return lacking | _timed_less_than(mixed, SCATTERED_ROUNDS)


def _timed_less_than(timings: QuerySet[CampaignTiming], rounds: int) -> set[int]:
    """Return the problems of the timings that had fewer rounds than that.

    A kernel belongs to one cell, so its evaluations for a settling are those of this campaign.
    """
    settling = Q(
        kernel__evaluations__purpose=EvaluationPurpose.SETTLING,
        # A campaign that was continued is settled again, and earlier timings use up none of its rounds.
        kernel__evaluations__created_at__gte=F("campaign__settling_at"),
    )
    tried = Count("kernel__evaluations", filter=settling, distinct=True)
    planned = Count("cell__timings", distinct=True)
    few = timings.order_by().annotate(tried=tried, planned=planned).filter(tried__lt=F("planned") * rounds)
    return set(few.values_list("cell__problem_version_id", flat=True))

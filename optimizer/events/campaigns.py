"""Wake the campaign of a run when something has happened that its step decides on."""

from __future__ import annotations

from optimizer.enqueue import enqueue_campaign, enqueue_retiming
from optimizer.events.payloads import EvaluationCancelled, EvaluationFinished, RunStateChanged
from optimizer.models import CampaignCell, Evaluation, EvaluationPurpose, Retiming, RunEvent

_WAKING = {RunStateChanged.type, EvaluationFinished.type, EvaluationCancelled.type}


def wake_campaign(event: RunEvent) -> None:
    """Enqueue the step of the run's campaign, and of a round of the regression watch whose timing has ended."""
    if event.type not in _WAKING:
        return
    # Only a message: the campaign's lock comes before its runs' everywhere, and a run's lock is held here.
    found = CampaignCell.objects.filter(run=event.run_id).values_list("campaign_id", flat=True).first()
    if found is not None:
        enqueue_campaign(found)
    evaluation = event.payload.get("evaluation")
    if evaluation and Evaluation.objects.filter(pk=evaluation, purpose=EvaluationPurpose.RETIMING).exists():
        rounds = Retiming.objects.filter(run=event.run_id, round__finished_at=None)
        for round_id in rounds.values_list("round_id", flat=True).distinct():
            enqueue_retiming(round_id)

"""Record a hypothesis on its run's timeline, whoever it comes from."""

from __future__ import annotations

from optimizer.events.payloads import HypothesisAdded
from optimizer.events.record import record
from optimizer.models import Hypothesis, Run, RunEvent


def record_hypothesis(run: Run, hypothesis: Hypothesis) -> RunEvent:
    """Record that the hypothesis was added. Call while holding the run's lock."""
    event = HypothesisAdded(
        hypothesis=hypothesis.pk,
        key=hypothesis.key,
        kind=hypothesis.kind,
        title=hypothesis.title,
        round=hypothesis.round,
        basis=hypothesis.basis.number if hypothesis.basis else None,
        predicted_min=hypothesis.predicted_min,
        predicted_max=hypothesis.predicted_max,
        innovation=hypothesis.innovation,
        chosen=hypothesis.chosen,
    )
    return record(run, event)

"""Store the events of a run in order and without gaps.

Websocket messages only announce that this table has grown; the table is the truth.
"""

from __future__ import annotations

from django.db import models

from optimizer.models.run import Run


class RunEvent(models.Model):
    """Store event number `seq` of a run. `optimizer.events.payloads` defines the types and their payloads."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events")
    seq = models.PositiveBigIntegerField()
    type = models.CharField(max_length=40)
    payload = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="one_event_per_seq")]
        ordering = ["run", "seq"]

    def __str__(self) -> str:
        return f"{self.run_id}/{self.seq} {self.type}"

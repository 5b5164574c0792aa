"""Store idempotency keys, so that a request which is sent twice acts once."""

from __future__ import annotations

from django.db import models

from optimizer.models.campaign import Campaign
from optimizer.models.run import Run
from optimizer.models.team import User


class IdempotencyKey(models.Model):
    """Store the key that a client sent with a request to start a run or a campaign.

    `request_hash` tells a repeated request from a different one under the same key. The row is inserted before what is
    started and in the same transaction, so the unique constraint makes a concurrent duplicate wait.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=100)
    request_hash = models.CharField(max_length=64)
    run = models.ForeignKey(Run, null=True, on_delete=models.CASCADE, related_name="+")
    campaign = models.ForeignKey(Campaign, null=True, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="one_start_per_idempotency_key")]

    def __str__(self) -> str:
        return self.key

    @property
    def started(self) -> Run | Campaign | None:
        """Return what the request started; None while its transaction is open."""
        return self.run or self.campaign

    def keep(self, started: Run | Campaign) -> None:
        """Store what the request started."""
        field = "run" if isinstance(started, Run) else "campaign"
        setattr(self, field, started)
        self.save(update_fields=[field])

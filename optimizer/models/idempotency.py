"""Requests that must act once however often they are sent."""

from __future__ import annotations

from django.db import models

from optimizer.models.run import Run
from optimizer.models.team import User


class IdempotencyKey(models.Model):
    """A key that a person's program sent with a start. `request_hash` tells a repetition from another request under
    the same key. The row is inserted before the run, in the same transaction: of two senders one waits."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=100)
    request_hash = models.CharField(max_length=64)
    run = models.ForeignKey(Run, null=True, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="one_start_per_idempotency_key")]

    def __str__(self) -> str:
        return self.key

"""Store the webhooks of a team and every delivery: a durable row that is sent until it arrives."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from optimizer.models.run import Run
from optimizer.models.team import Team, User
from optimizer.secrets import keys

_STANDARD_ALPHABET = str.maketrans("-_", "+/")


class WebhookEvent(models.TextChoices):
    """List the events that a webhook can subscribe to."""

    RUN_FINISHED = "run.finished", "A run has ended"
    NEW_BEST = "run.best", "A run has a new best kernel"


class DeliveryState(models.TextChoices):
    """List the states of a delivery."""

    WAITING = "waiting", "Waiting"
    DELIVERED = "delivered", "Delivered"
    GIVEN_UP = "given_up", "Given up"

    @property
    def tone(self) -> str:
        """Return the colour token of the state."""
        return {"waiting": "live", "delivered": "good", "given_up": "bad"}[self.value]


class Webhook(models.Model):
    """Store one webhook address of a team. The signing secret is shown once and stored encrypted."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="webhooks")
    url = models.CharField(max_length=400)
    secret_encrypted = models.TextField(editable=False)
    events = models.JSONField(default=list)
    is_enabled = models.BooleanField(default=True)
    allow_private = models.BooleanField(default=False)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.url

    def read_secret(self) -> str:
        """Return the decrypted secret for signing a request: `whsec_` and base64. Raises keys.UnreadableKeyError."""
        prefix, _, key = keys.decrypt(self.secret_encrypted).partition("_")
        # Secrets from before Standard Webhooks use base64's URL-safe alphabet, of which the library drops two letters.
        return f"{prefix}_{key.translate(_STANDARD_ALPHABET)}"


class WebhookDelivery(models.Model):
    """Store the delivery of one event of one run to one webhook.

    `body` is sent byte for byte. `next_at` is the time of the next attempt; while a worker is sending, it is the time
    after which that worker counts as lost.
    """

    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="deliveries")
    seq = models.PositiveBigIntegerField()
    event = models.CharField(max_length=40, choices=WebhookEvent.choices)
    body = models.TextField()
    state = models.CharField(max_length=10, choices=DeliveryState.choices, default=DeliveryState.WAITING)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_at = models.DateTimeField()
    last_status = models.PositiveSmallIntegerField(null=True, blank=True)
    last_error = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    delivered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["webhook", "run", "seq"], name="one_delivery_per_event")]
        indexes = [
            # the sweep looks for the few that are due among many that have arrived
            models.Index(fields=["next_at"], condition=Q(state="waiting"), name="delivery_due"),
        ]
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.event} of run {self.run_id} to {self.webhook}"

"""Store every call to a language model and its answer. The request is stored before it is sent."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from optimizer.models.choices import CallState
from optimizer.models.run import Run
from optimizer.models.team import User


class LlmCall(models.Model):
    """Store one attempt at one question.

    `key` is the name that the strategy gave the question; a repeated attempt (repair, lost worker) has a higher
    `attempt`. `context` holds what the strategy's `Ask` contained. `cost_usd` is None while the price is unknown.
    `transport` describes the request: tries, dropped parameters, finish reason, durations, and the source of the
    price.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="calls")
    key = models.CharField(max_length=120)
    attempt = models.PositiveSmallIntegerField(default=1)
    role = models.CharField(max_length=20)
    provider = models.CharField(max_length=60)
    model = models.CharField(max_length=120, blank=True)
    prompt_version = models.CharField(max_length=80, blank=True)
    context = models.JSONField(default=dict, blank=True)
    messages = models.JSONField(default=list)
    parameters = models.JSONField(default=dict, blank=True)
    answer_schema = models.CharField(max_length=60, blank=True)
    context_report = models.JSONField(default=dict, blank=True)
    transport = models.JSONField(default=dict, blank=True)
    state = models.CharField(max_length=10, choices=CallState.choices, default=CallState.QUEUED)
    answer_text = models.TextField(blank=True)
    answer = models.JSONField(null=True, blank=True)
    error = models.TextField(blank=True)
    prompt_tokens = models.PositiveIntegerField(null=True, blank=True)
    answer_tokens = models.PositiveIntegerField(null=True, blank=True)
    cached_tokens = models.PositiveIntegerField(null=True, blank=True)
    cost_usd = models.DecimalField(max_digits=12, decimal_places=6, null=True, blank=True)
    worker = models.CharField(max_length=100, blank=True)
    fence = models.PositiveIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    answered_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    asked_at = models.DateTimeField(null=True, blank=True)
    answered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "key", "attempt"], name="one_call_per_attempt")]
        indexes = [
            models.Index(
                fields=["lease_until"], condition=Q(state__in=["queued", "asking", "waiting"]), name="call_open"
            ),
        ]
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.role} {self.key}.{self.attempt}"

    @property
    def model_name(self) -> str:
        """Return the model that the server (or the person who answered) reported, else the model that was requested."""
        return str(self.transport.get("served_by") or self.model)

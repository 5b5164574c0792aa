"""Store what happened between a question and its answer: the model's turns and the tools that it called.

Rows are evidence and are added, never edited: a turn is stored as it came, and a tool call is filled in once.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from optimizer.models.choices import EvaluationStatus, ToolState
from optimizer.models.job import Job
from optimizer.models.llm_call import LlmCall
from optimizer.models.run import Run
from optimizer.models.team import User


class CallTurn(models.Model):
    """Store one answer that called tools instead of ending the question.

    `text` is what the model wrote beside its tool calls. `native` tells the provider's tools API from the text
    protocol, in which `text` contains the calls. `items` are opaque parts of the answer that the provider wants back
    (encrypted reasoning). `transport` is as in `LlmCall`.
    """

    call = models.ForeignKey(LlmCall, on_delete=models.CASCADE, related_name="turns")
    number = models.PositiveSmallIntegerField()
    text = models.TextField(blank=True)
    native = models.BooleanField(default=False)
    items = models.JSONField(default=list, blank=True)
    prompt_tokens = models.PositiveIntegerField(null=True, blank=True)
    answer_tokens = models.PositiveIntegerField(null=True, blank=True)
    cached_tokens = models.PositiveIntegerField(null=True, blank=True)
    cost_usd = models.DecimalField(max_digits=12, decimal_places=6, null=True, blank=True)
    transport = models.JSONField(default=dict, blank=True)
    answered_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["call", "number"], name="one_turn_per_number")]
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"turn {self.number} of {self.call_id}"


class ToolCall(models.Model):
    """Store one call of a tool.

    `number` counts the calls of the question over all its attempts. `reference` is the provider's id of the call.
    `source` is the kernel that the call is about, complete; later calls of the question refer to it. `result_text` is
    what the model reads. `job` is the runner's part of the work, if there is one. `summary` holds the outcome for
    pages in a few words. `device_s` is the device time that the call took.
    """

    turn = models.ForeignKey(CallTurn, on_delete=models.CASCADE, related_name="tool_calls")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="tool_calls")
    job = models.OneToOneField(Job, null=True, blank=True, on_delete=models.CASCADE, related_name="tool_call")
    number = models.PositiveSmallIntegerField()
    reference = models.CharField(max_length=200, blank=True)
    name = models.CharField(max_length=40)
    arguments = models.JSONField(default=dict, blank=True)
    language = models.CharField(max_length=10, blank=True)
    source = models.TextField(blank=True)
    state = models.CharField(max_length=10, choices=ToolState.choices, default=ToolState.QUEUED)
    stage = models.CharField(max_length=30, blank=True)
    result_text = models.TextField(blank=True)
    summary = models.JSONField(default=dict, blank=True)
    device_s = models.FloatField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["turn", "number"], name="one_tool_call_per_number")]
        indexes = [
            # The run's open tool calls, a few among many ended ones.
            models.Index(fields=["run"], condition=Q(state__in=["queued", "running"]), name="tool_call_open"),
        ]
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.name} {self.number}: {self.state}"

    @property
    def tone(self) -> str:
        """Return the colour token of the state, and of what the tool found where it judged a kernel."""
        return self._found.tone if self._found else ToolState(self.state).tone

    @property
    def label(self) -> str:
        """Return the state in words, or what is wrong with the kernel where the tool found it wrong."""
        found = self._found
        return ToolState(self.state).label if found in (None, EvaluationStatus.CORRECT) else found.label

    @property
    def _found(self) -> EvaluationStatus | None:
        """Return the status of the kernel that the tool judged, None where it judged none."""
        found = str(self.summary.get("status", ""))
        # Rows of before November 2026 have a status where the interpreter could not run the kernel too.
        if str(self.summary.get("headline", "")).startswith("Not checked"):
            return None
        if self.state != ToolState.DONE or found not in EvaluationStatus.values:
            return None
        return EvaluationStatus(found)

    def mark_started(self, fence: int) -> bool:
        """Mark the call as running for the worker with this fencing token. Return False when the token is outdated."""
        current = ToolCall.objects.filter(pk=self.pk, job__fence=fence, job__state="running")
        return current.update(state=ToolState.RUNNING, started_at=Coalesce("started_at", Now())) == 1

    def mark_ended(self, state: ToolState, text: str, **outcome: Any) -> None:
        """Store the result and save the row. `outcome` may contain summary and device_s."""
        self.state, self.result_text, self.stage, self.finished_at = state, text, "", timezone.now()
        for name, value in outcome.items():
            setattr(self, name, value)
        self.save()

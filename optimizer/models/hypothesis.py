"""What an agent expects of a change, recorded before it is tried, and what was measured after."""

from __future__ import annotations

from django.contrib.postgres.indexes import GinIndex
from django.db import models

from optimizer.models.choices import HypothesisKind
from optimizer.models.run import Run
from optimizer.models.search_text import HYPOTHESIS_WORDS


class Hypothesis(models.Model):
    """Avenue, experiment or instruction (GPU Kernel Scientist §3; STARK §4). Gains in per cent of speed."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="hypotheses")
    key = models.CharField(max_length=120)
    kind = models.CharField(max_length=16, choices=HypothesisKind.choices)
    round = models.PositiveIntegerField(default=0)
    title = models.CharField(max_length=300)
    description = models.TextField(blank=True)
    rubric = models.TextField(blank=True)
    basis = models.ForeignKey(
        "Kernel", null=True, blank=True, on_delete=models.SET_NULL, related_name="hypotheses_on"
    )
    reference = models.ForeignKey("Kernel", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    call = models.ForeignKey("LlmCall", null=True, blank=True, on_delete=models.SET_NULL, related_name="hypotheses")
    predicted_min = models.FloatField(null=True, blank=True)
    predicted_max = models.FloatField(null=True, blank=True)
    innovation = models.PositiveSmallIntegerField(null=True, blank=True)
    chosen = models.BooleanField(default=False)
    chosen_why = models.CharField(max_length=200, blank=True)
    measured_gain = models.FloatField(null=True, blank=True)
    rubric_followed = models.CharField(max_length=400, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "key"], name="one_hypothesis_per_key")]
        indexes = [GinIndex(HYPOTHESIS_WORDS, name="hypothesis_words")]
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.title

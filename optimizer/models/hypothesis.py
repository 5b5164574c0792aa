"""What an agent expects of a change, recorded before it is tried, and what was measured after."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Avg, Count, F, Q, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce, NullIf

from optimizer.models.choices import HypothesisKind
from optimizer.models.run import Run
from optimizer.models.search_text import HYPOTHESIS_WORDS

_SERVED_BY = NullIf(KeyTextTransform("served_by", "call__transport"), Value(""), output_field=models.TextField())
ANSWERER = Coalesce(_SERVED_BY, F("call__model"), output_field=models.TextField())
"""`LlmCall.model_name` of the call behind a hypothesis."""


@dataclass(frozen=True)
class Calibration:
    """How well one model knows, in one role, what its ideas are worth: how many were measured, how many of them fell
    within the predicted range, and `bias`, the middle of the range minus the measured gain in points of per cent on
    average. Above zero it promises too much."""

    role: str
    model: str
    measured: int
    within: int
    bias: float


class HypothesisQuerySet(models.QuerySet["Hypothesis"]):
    """Verbs of the hypotheses table."""

    def calibrations(self) -> list[Calibration]:
        """One line a role and model, over the hypotheses that were both predicted and measured."""
        known = (
            self.filter(measured_gain__isnull=False, predicted_min__isnull=False, predicted_max__isnull=False)
            .annotate(answerer=ANSWERER)
            .order_by("call__role", "answerer")
        )
        within = Q(measured_gain__gte=F("predicted_min"), measured_gain__lte=F("predicted_max"))
        rows = known.values_list("call__role", "answerer").annotate(
            measured=Count("pk"),
            within=Count("pk", filter=within),
            bias=Avg((F("predicted_min") + F("predicted_max")) / 2 - F("measured_gain")),
        )
        return [Calibration(role or "", model or "", *figures) for role, model, *figures in rows]


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

    objects = HypothesisQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "key"], name="one_hypothesis_per_key")]
        indexes = [GinIndex(HYPOTHESIS_WORDS, name="hypothesis_words")]
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.title

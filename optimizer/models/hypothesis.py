"""Store what an agent expects of a change before it is tried, and what was measured afterwards."""

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
from optimizer.models.titles import TitleField

_SERVED_BY = NullIf(KeyTextTransform("served_by", "call__transport"), Value(""), output_field=models.TextField())
# The same as `LlmCall.model_name`, as an expression over the call behind a hypothesis.
ANSWERER = Coalesce(_SERVED_BY, F("call__model"), output_field=models.TextField())


@dataclass(frozen=True)
class Calibration:
    """Compare one model's predictions in one role with the measurements.

    `measured` counts the hypotheses with both, `within` those whose gain fell into the predicted range. `bias` is the
    mean of the range's midpoint minus the measured gain, in percentage points; a positive bias means that the model
    is too optimistic.
    """

    role: str
    model: str
    measured: int
    within: int
    bias: float


class HypothesisQuerySet(models.QuerySet["Hypothesis"]):
    """Add the aggregates of the hypotheses table."""

    def calibrations(self) -> list[Calibration]:
        """Return one row per role and model, over the hypotheses that were both predicted and measured."""
        known = (
            self.filter(measured_gain__isnull=False, predicted_min__isnull=False, predicted_max__isnull=False)
            .annotate(answerer=ANSWERER)
            .order_by("call__role", "answerer")
        )
        # Computed in the database, as a team may have tens of thousands of hypotheses.
        within = Q(measured_gain__gte=F("predicted_min"), measured_gain__lte=F("predicted_max"))
        rows = known.values_list("call__role", "answerer").annotate(
            measured=Count("pk"),
            within=Count("pk", filter=within),
            bias=Avg((F("predicted_min") + F("predicted_max")) / 2 - F("measured_gain")),
        )
        return [Calibration(role or "", model or "", *figures) for role, model, *figures in rows]


class Hypothesis(models.Model):
    """Store an avenue or experiment (GPU Kernel Scientist, section 3) or an instruction (STARK, section 4).

    `predicted_min`, `predicted_max` and `measured_gain` are gains of speed in per cent.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="hypotheses")
    key = models.CharField(max_length=120)
    kind = models.CharField(max_length=16, choices=HypothesisKind.choices)
    round = models.PositiveIntegerField(default=0)
    title = TitleField(max_length=300)
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

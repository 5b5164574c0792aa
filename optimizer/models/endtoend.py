"""Store end-to-end reports: a whole program with a kernel against the same program without, measured by its owner."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from optimizer.models.choices import VerdictChoice
from optimizer.models.kernel import Kernel
from optimizer.models.team import User


class EndToEndReport(models.Model):
    """Store what `python -m runners endtoend` found on somebody's machine, with their program. Never edited.

    `speedup` is the time without the kernel divided by the time with it, for the whole program. `verdict` is computed
    here from interval and noise floor, never taken from the report. `calls` counts what the kernel served, and `missed`
    why torch computed instead.
    """

    kernel = models.ForeignKey(Kernel, on_delete=models.CASCADE, related_name="endtoend_reports")
    author = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    script = models.CharField(max_length=200)
    function = models.CharField(max_length=200, blank=True)
    device = models.CharField(max_length=200)
    torch_version = models.CharField(max_length=60, blank=True)
    without_s = models.FloatField()
    with_s = models.FloatField()
    speedup = models.FloatField()
    low = models.FloatField()
    high = models.FloatField()
    floor = models.FloatField()
    verdict = models.CharField(max_length=10, choices=VerdictChoice.choices)
    agrees = models.BooleanField()
    results = models.PositiveIntegerField()
    calls = models.PositiveBigIntegerField()
    missed = models.JSONField(default=dict)
    others = models.JSONField(default=list)
    sessions = models.PositiveIntegerField()
    rounds = models.PositiveIntegerField()

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(low__gt=0, low__lte=F("speedup"), speedup__lte=F("high"), floor__gte=1),
                name="endtoend_interval_holds_speedup",
            )
        ]

    def __str__(self) -> str:
        return f"{self.script} with {self.kernel}"

    @property
    def finding(self) -> str:
        """Return the finding in words: a gain is claimed only where results agree and the kernel was called."""
        if not self.agrees:
            return "Wrong: results differ"
        if not self.calls:
            return "Never called"
        return {"faster": "Faster", "slower": "Slower"}.get(self.verdict, "No gain")

    @property
    def tone(self) -> str:
        """Return the colour token of the finding."""
        tones = {"Faster": "good", "No gain": "muted", "Never called": "warn"}
        return tones.get(self.finding, "bad")

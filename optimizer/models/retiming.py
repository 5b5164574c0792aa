"""Store rounds of the regression watch: released kernels that are timed again, and what was found."""

from __future__ import annotations

from typing import Self

from django.db import models

from optimizer.models.evaluation import Evaluation
from optimizer.models.kernel import Kernel
from optimizer.models.run import Run
from optimizer.models.target import Target
from optimizer.models.team import Membership, Team, User
from optimizer.models.titles import TitleField


class RetimeVerdict(models.TextChoices):
    """List what a second timing says about a released kernel."""

    SAME = "same", "No change shown"
    SLOWER = "slower", "Slower"
    FASTER = "faster", "Faster"
    BROKEN = "broken", "No longer correct"
    UNKNOWN = "unknown", "Not measured"

    @property
    def tone(self) -> str:
        """Return the colour token of the verdict."""
        return {"slower": "bad", "broken": "bad", "faster": "good", "unknown": "warn"}.get(self.value, "muted")

    @property
    def is_change(self) -> bool:
        """Return True for a finding that people are told of."""
        return self in {RetimeVerdict.SLOWER, RetimeVerdict.FASTER, RetimeVerdict.BROKEN}

    @property
    def is_alarm(self) -> bool:
        """Return True for a finding with which the command fails."""
        return self in {RetimeVerdict.SLOWER, RetimeVerdict.BROKEN}


class RetimeRoundQuerySet(models.QuerySet["RetimeRound"]):
    """Add the filters of the table of rounds."""

    def visible_to(self, user: User) -> Self:
        """Return the rounds of the person's teams."""
        if user.is_superuser:
            return self
        return self.filter(team__in=Membership.objects.filter(user=user).values("team"))


class RetimeRound(models.Model):
    """Store one round: a team's released kernels of one target, timed again. `reason` says what started it.

    `software` lists what the target's live runners ran on at the start, a dictionary of versions each: the same is no
    reason for another round.
    """

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="retime_rounds")
    target = models.ForeignKey(Target, on_delete=models.PROTECT, related_name="retime_rounds")
    reason = TitleField(max_length=200, blank=True)
    software = models.JSONField(default=list)
    created_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    advanced_at = models.DateTimeField(null=True, blank=True)

    objects = RetimeRoundQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        constraints = [
            # Two rounds at once would disturb each other's timings.
            models.UniqueConstraint(
                fields=["team", "target"], condition=models.Q(finished_at=None), name="one_open_round_per_target"
            )
        ]

    def __str__(self) -> str:
        return f"round {self.pk} of {self.team} on {self.target}"


class Retiming(models.Model):
    """Store one kernel of a round.

    `reference` is the evaluation to compare with: the second measurement of the release. `second` is the re-run that
    a change needs before anybody is told. `ratio` is new speedup / old speedup over the same baseline, of the last
    timing.
    """

    round = models.ForeignKey(RetimeRound, on_delete=models.CASCADE, related_name="retimings")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="+")
    kernel = models.ForeignKey(Kernel, on_delete=models.CASCADE, related_name="retimings")
    reference = models.ForeignKey(Evaluation, on_delete=models.CASCADE, related_name="+")
    first = models.OneToOneField(Evaluation, null=True, on_delete=models.SET_NULL, related_name="+")
    second = models.OneToOneField(Evaluation, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    verdict = models.CharField(max_length=8, choices=RetimeVerdict.choices, blank=True)
    ratio = models.FloatField(null=True, blank=True)
    text = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["round", "kernel"], name="one_retiming_per_kernel")]

    def __str__(self) -> str:
        return f"{self.kernel} in {self.round}"

    @property
    def verdict_choice(self) -> RetimeVerdict:
        """Return the verdict as an enumeration member; `unknown` while there is none."""
        return RetimeVerdict(self.verdict or RetimeVerdict.UNKNOWN)

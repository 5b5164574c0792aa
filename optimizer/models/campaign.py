"""Store campaigns: a suite of problems, several configurations, several seeds, one run for each combination.

The rows are the whole state. A cell that has a run was started, and cells get their run in the transaction that
creates it, so that a crash neither loses nor doubles one.
"""

from __future__ import annotations

from typing import Any, Self

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from optimizer.models.choices import ObjectiveChoice, refused_change
from optimizer.models.evaluation import Evaluation
from optimizer.models.kernel import Kernel
from optimizer.models.problem import ProblemVersion
from optimizer.models.run import Run
from optimizer.models.suite import Suite
from optimizer.models.target import Target
from optimizer.models.team import Membership, Team, User
from optimizer.models.titles import TitleField


class CampaignTransitionError(ValueError):
    """Report that a campaign cannot change from its state to the requested one."""


class CampaignState(models.TextChoices):
    """List the states of a campaign."""

    RUNNING = "running", "Running"
    PAUSED = "paused", "Paused"
    SETTLING = "settling", "Settling"
    STOPPING = "stopping", "Stopping"
    FINISHED = "finished", "Finished"
    STOPPED = "stopped", "Stopped"

    @property
    def is_terminal(self) -> bool:
        """Return True when the campaign has ended."""
        return self in {CampaignState.FINISHED, CampaignState.STOPPED}

    @property
    def tone(self) -> str:
        """Return the colour token of the state."""
        return _TONES[self]


_TONES = {
    CampaignState.RUNNING: "live",
    CampaignState.PAUSED: "warn",
    CampaignState.SETTLING: "live",
    CampaignState.STOPPING: "warn",
    CampaignState.FINISHED: "good",
    CampaignState.STOPPED: "muted",
}
# What all runs of a campaign together may be limited in.
LIMIT_KINDS = ("usd", "tokens", "device_minutes")
# The states in which the step has something to do.
LIVE_STATES = (CampaignState.RUNNING, CampaignState.SETTLING, CampaignState.STOPPING)


class CampaignQuerySet(models.QuerySet["Campaign"]):
    """Add the filters of the campaign table."""

    def visible_to(self, user: User) -> Self:
        """Return the campaigns of the person's teams; private ones as for runs."""
        if user.is_superuser:
            return self
        mine = Membership.objects.filter(user=user)
        shown = Q(created_by=user) | Q(is_private=False) | Q(team__in=mine.filter(role="owner").values("team"))
        return self.filter(Q(team__in=mine.values("team")) & shown)

    def live(self) -> Self:
        """Return the campaigns whose step has something to do."""
        return self.filter(state__in=LIVE_STATES)


class Campaign(models.Model):
    """Store the settings and the state of a campaign.

    `baselines` are timed at the end beside every winner; runs search against the first of them. `limit_*` hold for all
    runs together, None is unlimited. `order_seed` determines the random order of the cells. `unusable` lists the chosen
    problems that cannot be read, as {"name", "complaint"}.
    """

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="campaigns")
    title = TitleField(max_length=120)
    suite = models.ForeignKey(Suite, on_delete=models.PROTECT, related_name="campaigns")
    target = models.ForeignKey(Target, on_delete=models.PROTECT, related_name="campaigns")
    baselines = ArrayField(models.CharField(max_length=40))
    objective = models.CharField(max_length=10, choices=ObjectiveChoice.choices, default=ObjectiveChoice.DEVICE)
    dispatcher = models.CharField(max_length=20, default="celery")
    dispatch_settings = models.JSONField(default=dict, blank=True)
    unusable = models.JSONField(default=list, blank=True)
    order_seed = models.BigIntegerField(default=0)
    is_private = models.BooleanField(default=False)

    limit_usd = models.DecimalField(max_digits=10, decimal_places=4, null=True, blank=True)
    limit_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    limit_device_minutes = models.FloatField(null=True, blank=True)
    parallel_runs = models.PositiveSmallIntegerField(default=1)

    state = models.CharField(max_length=10, choices=CampaignState.choices, default=CampaignState.RUNNING)
    stop_reason = models.CharField(max_length=300, blank=True)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="campaigns")
    created_at = models.DateTimeField(auto_now_add=True)
    settling_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    advanced_at = models.DateTimeField(null=True, blank=True)

    objects = CampaignQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["team", "-created_at"]),
            models.Index(fields=["state"], condition=Q(state__in=LIVE_STATES), name="campaign_live"),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(parallel_runs__gte=1), name="campaign_parallel_runs"),
            models.CheckConstraint(condition=Q(limit_usd__isnull=True) | Q(limit_usd__gte=0), name="campaign_usd"),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def state_choice(self) -> CampaignState:
        """Return the state as an enumeration member, with its label, tone and terminality."""
        return CampaignState(self.state)

    @property
    def limits(self) -> dict[str, Any]:
        """Return the limits of all runs together, by kind; None is unlimited."""
        return {kind: getattr(self, f"limit_{kind}") for kind in LIMIT_KINDS}

    def enter(self, state: CampaignState, reason: str = "") -> None:
        """Change the state and save. Raises CampaignTransitionError."""
        if self.state not in _BEFORE[state]:
            raise CampaignTransitionError(refused_change("campaign", self.state_choice, state))
        self._change(state, reason)

    def reopen(self, reason: str) -> None:
        """Change a finished campaign back to running. Nothing counts until it is settled again."""
        if self.state != CampaignState.FINISHED:
            raise CampaignTransitionError(refused_change("campaign", self.state_choice, CampaignState.RUNNING))
        self.settling_at = None
        self._change(CampaignState.RUNNING, reason)

    def _change(self, state: CampaignState, reason: str) -> None:
        now = timezone.now()
        self.settling_at = self.settling_at or (now if state == CampaignState.SETTLING else None)
        self.finished_at = now if state.is_terminal else None
        self.state, self.stop_reason = state, (reason or self.stop_reason)[:300]
        self.save(update_fields=["state", "stop_reason", "settling_at", "finished_at"])


# From which states each state can be entered.
_BEFORE: dict[CampaignState, frozenset[CampaignState]] = {
    CampaignState.RUNNING: frozenset({CampaignState.PAUSED}),
    CampaignState.PAUSED: frozenset({CampaignState.RUNNING, CampaignState.SETTLING}),
    CampaignState.SETTLING: frozenset({CampaignState.RUNNING}),
    CampaignState.STOPPING: frozenset({CampaignState.RUNNING, CampaignState.SETTLING, CampaignState.PAUSED}),
    CampaignState.FINISHED: frozenset({CampaignState.SETTLING}),
    CampaignState.STOPPED: frozenset({CampaignState.STOPPING}),
}


class CampaignConfiguration(models.Model):
    """Store what is compared: a strategy with its settings, models and budget.

    `budget` maps a kind of `optimizer.queries.budgets.Budget` to its limit for each run; dollars are stored as text.
    With `halted_why` no further run of the configuration is started.
    """

    campaign = models.ForeignKey(Campaign, on_delete=models.CASCADE, related_name="configurations")
    position = models.PositiveSmallIntegerField()
    name = TitleField(max_length=60)
    strategy = models.CharField(max_length=40)
    settings = models.JSONField(default=dict, blank=True)
    providers = models.JSONField(default=dict, blank=True)
    budget = models.JSONField(default=dict, blank=True)
    halted_why = models.CharField(max_length=300, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["campaign", "name"], name="one_configuration_per_name"),
            models.UniqueConstraint(fields=["campaign", "position"], name="one_configuration_per_position"),
        ]
        ordering = ["position"]

    def __str__(self) -> str:
        return self.name


class CampaignCell(models.Model):
    """Store one combination of problem, configuration and seed, in the order in which cells are started.

    A cell waits until it has a run or is skipped with a reason. `why` says why it was skipped, or why its run gave no
    result. `is_held` marks a run that the campaign itself has paused, and `is_continuing` one that has used up its
    budget and waits for a place to go on with its configuration's larger one. `is_behind` marks one that could not go
    on, so that it had less than the others and does not count. `continuations` is how often its run was continued, and
    `before_s` the device time in seconds that it had used by then. `steps` are the points at which the run's best
    kernel improved, stored when the run has ended (see `optimizer.queries.campaign_steps`).
    """

    campaign = models.ForeignKey(Campaign, on_delete=models.CASCADE, related_name="cells")
    configuration = models.ForeignKey(CampaignConfiguration, on_delete=models.CASCADE, related_name="cells")
    problem_version = models.ForeignKey(ProblemVersion, on_delete=models.PROTECT, related_name="campaign_cells")
    name = TitleField(max_length=200)
    seed = models.BigIntegerField()
    order = models.PositiveIntegerField()
    run = models.OneToOneField(Run, null=True, blank=True, on_delete=models.RESTRICT, related_name="campaign_cell")
    is_skipped = models.BooleanField(default=False)
    is_held = models.BooleanField(default=False)
    is_continuing = models.BooleanField(default=False, db_default=False)
    is_behind = models.BooleanField(default=False, db_default=False)
    continuations = models.PositiveSmallIntegerField(default=0, db_default=0)
    before_s = models.FloatField(default=0.0, db_default=0.0)
    is_closed = models.BooleanField(default=False)
    why = models.CharField(max_length=300, blank=True)
    steps = models.JSONField(default=list, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["campaign", "problem_version", "configuration", "seed"], name="one_cell_per_combination"
            ),
            models.UniqueConstraint(fields=["campaign", "order"], name="one_cell_per_place"),
            models.CheckConstraint(condition=Q(is_skipped=False) | Q(run__isnull=True), name="skipped_has_no_run"),
            models.CheckConstraint(
                condition=Q(is_continuing=False) | Q(run__isnull=False, is_closed=False),
                name="continuing_has_a_run",
            ),
        ]
        ordering = ["order"]

    def __str__(self) -> str:
        return f"{self.name} · {self.configuration} · seed {self.seed}"


class CampaignTiming(models.Model):
    """Store one timing of the settling: a cell's winner beside one baseline, in cold processes.

    All timings of a problem are queued together, in random order. They count once all of them have ended.
    """

    campaign = models.ForeignKey(Campaign, on_delete=models.CASCADE, related_name="timings")
    cell = models.ForeignKey(CampaignCell, on_delete=models.CASCADE, related_name="timings")
    kernel = models.ForeignKey(Kernel, on_delete=models.RESTRICT, related_name="+")
    baseline = models.CharField(max_length=40)
    order = models.PositiveIntegerField()
    evaluation = models.OneToOneField(
        Evaluation, null=True, blank=True, on_delete=models.RESTRICT, related_name="campaign_timing"
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cell", "baseline"], name="one_timing_per_baseline"),
            models.UniqueConstraint(fields=["campaign", "order"], name="one_timing_per_place"),
        ]
        ordering = ["order"]

    def __str__(self) -> str:
        return f"{self.cell} against {self.baseline}"

"""Store runs: one problem, one target, one strategy, one budget each."""

from __future__ import annotations

from typing import Self

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import connection, models
from django.db.models import Q
from django.utils import timezone
from django.utils.functional import cached_property

from optimizer.models.choices import ObjectiveChoice, RunState, TeamRole, refused_change
from optimizer.models.problem import ProblemVersion
from optimizer.models.search_text import RUN_WORDS
from optimizer.models.target import Target
from optimizer.models.team import Membership, Team, User
from optimizer.models.titles import TitleField

_NEXT_SEQ = "UPDATE optimizer_run SET last_seq = last_seq + 1 WHERE id = %s RETURNING last_seq"


class RunTransitionError(ValueError):
    """Report that a run cannot change from its state to the requested one."""


class RunQuerySet(models.QuerySet["Run"]):
    """Add the filters of the run table."""

    def visible_to(self, user: User) -> Self:
        """Return the runs of the person's teams; private runs only for the person who started them and for team
        owners.
        """
        if user.is_superuser:
            return self
        # subqueries instead of joins: no duplicates to remove, so an index can give the newest page alone
        mine = Membership.objects.filter(user=user)
        shown = Q(created_by=user) | Q(is_private=False) | Q(team__in=mine.filter(role="owner").values("team"))
        return self.filter(Q(team__in=mine.values("team")) & shown)

    def for_dashboard(self) -> Self:
        """Join everything that a row of the runs table shows, in one query."""
        return self.select_related("problem_version__problem", "target", "created_by", "team", "best_kernel")

    def active(self) -> Self:
        """Return the runs that have not ended."""
        return self.filter(state__in=[state for state in RunState if not state.is_terminal])


class Run(models.Model):
    """Store the durable state of a search.

    Only `optimizer.loop.advance` changes the counters. A budget of None is unlimited. `spent_*` include failed calls
    and evaluations. `ended_by_budget` says whether a budget was used up when the run finished, None where that was not
    stored. `warned` maps each budget to the last percentage that was announced. `last_seq` is the number of
    the newest event; it only grows, under the row's lock. `finish_reason` is set once somebody wants the run to finish:
    its best kernels are then measured again and it ends, as if its budget were used up. Jobs of a run with a lower
    `priority` number go first.
    """

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="runs")
    title = TitleField(max_length=200, blank=True)
    problem_version = models.ForeignKey(ProblemVersion, on_delete=models.PROTECT, related_name="runs")
    target = models.ForeignKey(Target, on_delete=models.PROTECT, related_name="runs")
    strategy = models.CharField(max_length=40)
    settings = models.JSONField(default=dict, blank=True)
    providers = models.JSONField(default=dict, blank=True)
    baseline = models.CharField(max_length=40, default="torch_eager")
    objective = models.CharField(max_length=10, choices=ObjectiveChoice.choices, default=ObjectiveChoice.DEVICE)
    seed = models.BigIntegerField(default=0)
    dispatcher = models.CharField(max_length=20, default="celery")
    dispatch_settings = models.JSONField(default=dict, blank=True)
    priority = models.SmallIntegerField(default=0)
    guidance = models.TextField(blank=True)
    is_private = models.BooleanField(default=False)
    is_demo = models.BooleanField(default=False)
    is_archived = models.BooleanField(default=False)
    tags = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    notes = models.TextField(blank=True)

    budget_evaluations = models.PositiveIntegerField(null=True, blank=True)
    budget_minutes = models.FloatField(null=True, blank=True)
    budget_usd = models.DecimalField(max_digits=10, decimal_places=4, null=True, blank=True)
    budget_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    budget_device_minutes = models.FloatField(null=True, blank=True)
    spent_evaluations = models.PositiveIntegerField(default=0)
    spent_usd = models.DecimalField(max_digits=12, decimal_places=6, default=0)
    spent_tokens = models.PositiveBigIntegerField(default=0)
    spent_device_s = models.FloatField(default=0)
    warned = models.JSONField(default=dict, blank=True)

    state = models.CharField(max_length=12, choices=RunState.choices, default=RunState.PENDING)
    stop_reason = models.CharField(max_length=300, blank=True)
    finish_reason = TitleField(max_length=300, blank=True)
    last_seq = models.PositiveBigIntegerField(default=0)
    best_kernel = models.ForeignKey("Kernel", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    best_speedup = models.FloatField(null=True, blank=True)
    best_speedup_low = models.FloatField(null=True, blank=True)
    best_speedup_high = models.FloatField(null=True, blank=True)

    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="runs")
    cloned_from = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="clones")
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    reopened_at = models.DateTimeField(null=True, blank=True)
    ended_by_budget = models.BooleanField(null=True, blank=True)
    running_since = models.DateTimeField(null=True, blank=True)
    active_s = models.FloatField(default=0)
    advanced_at = models.DateTimeField(null=True, blank=True)

    objects = RunQuerySet.as_manager()

    class Meta:
        indexes = [
            # the runs table: newest first within a team
            models.Index(fields=["team", "-created_at"]),
            GinIndex(RUN_WORDS, name="run_words"),
            # the sweep looks at the few active runs among many ended ones
            models.Index(
                fields=["state"], condition=Q(state__in=["pending", "running", "stopping"]), name="run_active"
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(budget_minutes__isnull=True) | Q(budget_minutes__gt=0), name="run_minutes"
            ),
            models.CheckConstraint(condition=Q(budget_usd__isnull=True) | Q(budget_usd__gte=0), name="run_usd"),
        ]

    def __str__(self) -> str:
        return self.title or f"Run {self.pk}"

    @cached_property
    def known_roles(self) -> dict[int, TeamRole | None]:
        """Return the roles in the run's team that were looked up for this object, by the person's key."""
        return {}

    @property
    def state_choice(self) -> RunState:
        """Return the state as an enumeration member, with its label, tone and terminality."""
        return RunState(self.state)

    def start(self) -> None:
        """Change the state from pending or paused to running."""
        self._enter(RunState.RUNNING, RunState.PENDING, RunState.PAUSED)

    def pause(self, reason: str = "") -> None:
        """Pause the run: open work ends, nothing new begins, and the clock of active minutes stops."""
        self._enter(RunState.PAUSED, RunState.PENDING, RunState.RUNNING, reason=reason)

    def stop(self, reason: str = "") -> None:
        """Start stopping a live run; it enters the state stopped once nothing is open."""
        self._enter(RunState.STOPPING, RunState.PENDING, RunState.RUNNING, RunState.PAUSED, reason=reason)

    def wind_down(self, reason: str) -> None:
        """Let a live run finish: nothing new begins, and what leads is measured again."""
        if self.state_choice.is_terminal or self.state == RunState.STOPPING:
            raise RunTransitionError(refused_change("run", self.state_choice, RunState.FINISHED))
        self.finish_reason = reason[:300]
        self.save(update_fields=["finish_reason"])

    def reopen(self) -> None:
        """Change a finished run back to running; what it settled and spent stays."""
        self._enter(RunState.RUNNING, RunState.FINISHED)
        self.finish_reason = ""
        self.reopened_at = timezone.now()
        self.ended_by_budget = None
        self.save(update_fields=["finish_reason", "reopened_at", "ended_by_budget"])

    def end(self, state: RunState, reason: str) -> None:
        """Enter a terminal state: finished or failed from running, stopped from stopping."""
        before = RunState.STOPPING if state == RunState.STOPPED else RunState.RUNNING
        self._enter(state, before, reason=reason or self.stop_reason)

    def _enter(self, state: RunState, *allowed: RunState, reason: str = "") -> None:
        """Change the state, update the clocks and save. Raises RunTransitionError."""
        if self.state not in allowed:
            raise RunTransitionError(refused_change("run", self.state_choice, state))
        now = timezone.now()
        # Close the current span before the clocks change: `elapsed_s` reads `running_since`.
        self.active_s = self.elapsed_s()
        self.running_since = now if state == RunState.RUNNING else None
        self.started_at = self.started_at or (now if state == RunState.RUNNING else None)
        self.finished_at = now if state.is_terminal else None
        self.state, self.stop_reason = state, reason[:300]
        self.save(update_fields=["state", "stop_reason", "active_s", "running_since", "started_at", "finished_at"])

    def next_seq(self) -> int:
        """Allocate the next event number from the database row, not from this object's copy.

        Use the number in the same transaction, which holds the row's lock from here on.
        """
        # `UPDATE … RETURNING` locks the row until commit. A sequence would leave gaps after a rollback, and would
        # let event 8 be committed before event 7, which clients that resume after their last number would then
        # miss.
        with connection.cursor() as cursor:
            cursor.execute(_NEXT_SEQ, [self.pk])
            (self.last_seq,) = cursor.fetchone() or (self.last_seq,)
        return self.last_seq

    def elapsed_s(self) -> float:
        """Return how many seconds this run has spent in the state running, without its pauses."""
        current = (timezone.now() - self.running_since).total_seconds() if self.running_since else 0.0
        return self.active_s + current

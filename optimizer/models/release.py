"""Store releases: kernels that a team requested, approved, measured once more and published."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Q
from django.utils import timezone

from optimizer.models.evaluation import Evaluation
from optimizer.models.kernel import Kernel
from optimizer.models.review import Review
from optimizer.models.run import Run
from optimizer.models.team import User
from optimizer.models.titles import TitleField


class ReleaseState(models.TextChoices):
    """List the states of a release."""

    ASKED = "asked", "Awaiting approval"
    RELEASED = "released", "Released"
    STALE = "stale", "Stale"
    REPLACED = "replaced", "Replaced"
    WITHDRAWN = "withdrawn", "Withdrawn"

    @property
    def is_terminal(self) -> bool:
        """Return True when the row will not change any more."""
        return self in {ReleaseState.STALE, ReleaseState.REPLACED, ReleaseState.WITHDRAWN}

    @property
    def tone(self) -> str:
        """Return the colour token of the state."""
        return {"asked": "live", "released": "good", "stale": "warn"}.get(self.value, "muted")


class ReleaseQuerySet(models.QuerySet["Release"]):
    """Add the filters of the release table."""

    def visible_to(self, user: User) -> Self:
        """Return the releases of runs that the person may see."""
        return self.filter(kernel__run__in=Run.objects.visible_to(user).order_by().values("pk"))

    def with_kernel(self) -> Self:
        """Join what a row of the release list shows, without the large text columns."""
        return self.select_related(
            "kernel__run__problem_version__problem", "kernel__run__target", "kernel__run__team",
            "kernel__evaluation__job", "rerun__job", "asked_by", "released_by", "superseded_by",
        ).defer("kernel__source", "kernel__run__problem_version__bundle")  # fmt: skip

    def supersede(self, run_id: int, leader_id: int) -> int:
        """Apply that the kernel `leader_id` now leads the run, and return the number of changed rows.

        Requested releases become stale; a published one keeps its state and names its successor.
        """
        others = self.filter(kernel__run=run_id).exclude(kernel=leader_id)
        now = timezone.now()
        asked = others.filter(state=ReleaseState.ASKED)
        # A released kernel stays released: a team relies on it, whatever has been found since.
        stale = asked.update(state=ReleaseState.STALE, superseded_by=leader_id, ended_at=now)
        released = others.filter(state=ReleaseState.RELEASED, superseded_by=None)
        return stale + released.update(superseded_by=leader_id)


class Release(models.Model):
    """Store one attempt to release a kernel.

    `approvals` are the reviews that counted at the moment of release. `rerun` is the evaluation that was queued with
    the request: a second measurement in another process, on whichever runner takes it.
    """

    kernel = models.ForeignKey(Kernel, on_delete=models.CASCADE, related_name="releases")
    state = models.CharField(max_length=10, choices=ReleaseState.choices, default=ReleaseState.ASKED)
    note = TitleField(max_length=300, blank=True)
    asked_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    asked_at = models.DateTimeField(auto_now_add=True)
    rerun = models.OneToOneField(Evaluation, null=True, on_delete=models.SET_NULL, related_name="release")
    approvals = models.ManyToManyField(Review, related_name="releases")
    released_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    released_at = models.DateTimeField(null=True, blank=True)
    superseded_by = models.ForeignKey(Kernel, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")

    objects = ReleaseQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["kernel"], condition=Q(state__in=["asked", "released"]), name="one_open_release_per_kernel"
            ),
            models.CheckConstraint(
                condition=~Q(state="released") | Q(released_at__isnull=False), name="a_release_has_a_moment"
            ),
        ]
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.get_state_display()}: {self.kernel}"

    @property
    def state_choice(self) -> ReleaseState:
        """Return the state as an enumeration member, with its label and tone."""
        return ReleaseState(self.state)

    def mark_released(self, user: User, reviews: list[Review]) -> None:
        """Change the state from asked to released, on these approvals. Call under the run's lock."""
        self.state, self.released_by, self.released_at = ReleaseState.RELEASED, user, timezone.now()
        self.save(update_fields=["state", "released_by", "released_at"])
        self.approvals.set(reviews)

    def end(self, state: ReleaseState, user: User | None) -> None:
        """End the release: withdrawn by a person, or replaced by another release (`user` None)."""
        self.state, self.ended_by, self.ended_at = state, user, timezone.now()
        self.save(update_fields=["state", "ended_by", "ended_at"])

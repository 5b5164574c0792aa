"""Store problems and their versions.

A version is immutable: importing a changed directory creates a new version.
"""

from __future__ import annotations

from typing import Self

from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q

from optimizer.models.search_text import PROBLEM_WORDS
from optimizer.models.team import Membership, Team, User
from optimizer.models.titles import TitleField
from runners import wire
from runners.job import ProblemBundle


class ProblemQuerySet(models.QuerySet["Problem"]):
    """Add the filters of the problem table."""

    def visible_to(self, user: User) -> Self:
        """Return the problems that the person may see: those of everybody, and those of their teams."""
        if user.is_superuser:
            return self
        return self.filter(Q(team=None) | Q(team__in=Membership.objects.filter(user=user).values("team")))


class Problem(models.Model):
    """Store a kernel problem under a stable slug.

    `origin` is `shipped`, or the path or name it was imported from. `team` is None where everybody sees the problem;
    otherwise only its members do, and only its runs may use it.
    """

    slug = models.SlugField(max_length=120, unique=True)
    title = TitleField(max_length=200)
    origin = models.CharField(max_length=300, default="shipped")
    team = models.ForeignKey(Team, null=True, blank=True, on_delete=models.CASCADE, related_name="problems")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ProblemQuerySet.as_manager()

    class Meta:
        indexes = [GinIndex(PROBLEM_WORDS, name="problem_words")]

    def __str__(self) -> str:
        return self.title

    def latest(self) -> ProblemVersion:
        """Return the newest version. Raises ProblemVersion.DoesNotExist for a problem without one."""
        return self.versions.latest("number")

    def latest_id(self) -> int:
        """Return the id of the newest version without its files. Raises ProblemVersion.DoesNotExist."""
        return self.versions.only("pk").latest("number").pk


class ProblemVersion(models.Model):
    """Store one immutable state of a problem's files.

    `bundle` is a `runners.job.ProblemBundle` as JSON; `warnings` are the remarks of the import filters.
    """

    problem = models.ForeignKey(Problem, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    content_hash = models.CharField(max_length=64)
    bundle = models.JSONField()
    description = models.TextField(blank=True)
    languages = models.JSONField(default=list)
    warnings = models.JSONField(default=list)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["problem", "number"], name="one_number_per_problem_version"),
            models.UniqueConstraint(fields=["problem", "content_hash"], name="one_version_per_problem_content"),
        ]

    def __str__(self) -> str:
        return f"{self.problem} v{self.number}"

    def as_bundle(self) -> ProblemBundle:
        """Return the problem's files in the form that the runners take."""
        return wire.from_plain(ProblemBundle, self.bundle)

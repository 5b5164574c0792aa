"""Store problems and their versions.

A version is immutable: importing a changed directory creates a new version.
"""

from __future__ import annotations

from django.db import models

from optimizer.models.titles import TitleField
from runners import wire
from runners.job import ProblemBundle


class Problem(models.Model):
    """Store a kernel problem under a stable slug. `origin` is `shipped`, or the path or name it was imported from."""

    slug = models.SlugField(max_length=120, unique=True)
    title = TitleField(max_length=200)
    origin = models.CharField(max_length=300, default="shipped")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.title

    def latest(self) -> ProblemVersion:
        """Return the newest version. Raises ProblemVersion.DoesNotExist for a problem without one."""
        return self.versions.latest("number")


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

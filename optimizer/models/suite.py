"""Store suites: named lists of problems, read from a path on disk, from which campaigns are started.

A suite is immutable, like a problem version: importing a changed path creates the next number under the same name.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from optimizer.models.problem import ProblemVersion
from optimizer.models.titles import TitleField


class Suite(models.Model):
    """Store one state of a suite.

    `origin` is the path or name that it was read from, `version` the commit of that path where it is known, and
    `licence` the first line of its licence file. `content_hash` covers names, problem versions and complaints.
    """

    slug = models.SlugField(max_length=80)
    number = models.PositiveIntegerField(default=1)
    title = TitleField(max_length=200)
    origin = models.CharField(max_length=300, blank=True)
    version = models.CharField(max_length=80, blank=True)
    licence = models.CharField(max_length=120, blank=True)
    content_hash = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["slug", "number"], name="one_number_per_suite")]
        ordering = ["slug", "-number"]

    def __str__(self) -> str:
        return f"{self.title} v{self.number}"


class SuiteEntry(models.Model):
    """Store one problem of a suite, or why it cannot be used.

    `name` is its path below the suite's, without suffix. `footprint_bytes` is what one call on a GPU touches, as far as
    reading the problem tells.
    """

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="entries")
    position = models.PositiveIntegerField()
    name = TitleField(max_length=200)
    problem_version = models.ForeignKey(
        ProblemVersion, null=True, blank=True, on_delete=models.PROTECT, related_name="suite_entries"
    )
    complaint = models.CharField(max_length=500, blank=True)
    footprint_bytes = models.BigIntegerField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["suite", "name"], name="one_entry_per_name"),
            # What cannot be used is named with its reason, never silently left out.
            models.CheckConstraint(
                condition=Q(problem_version__isnull=False) | ~Q(complaint=""), name="entry_usable_or_named"
            ),
        ]
        ordering = ["position"]

    def __str__(self) -> str:
        return self.name

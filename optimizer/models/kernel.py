"""Store kernels and their ancestry. Source, tunables and flags never change once stored."""

from __future__ import annotations

from typing import Self

from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import F, Q

from optimizer.models.choices import AuthorKind, EvaluationStatus
from optimizer.models.hypothesis import Hypothesis
from optimizer.models.run import Run
from optimizer.models.search_text import KERNEL_WORDS
from optimizer.models.team import User
from optimizer.models.titles import TitleField
from runners.job import Language, Source


class KernelQuerySet(models.QuerySet["Kernel"]):
    """Add the filters of the kernel table."""

    def for_table(self) -> Self:
        """Join what a row of a run's kernel table shows, ordered by number."""
        return self.select_related("hypothesis", "evaluation").order_by("number")

    def rankable(self) -> Self:
        """Return the kernels that may lead a run: correct, timed, and not marked as unconfirmed."""
        return self.filter(
            evaluation__status=EvaluationStatus.CORRECT,
            evaluation__time_us__isnull=False,
            evaluation__unconfirmed=False,
        )

    def best_first(self) -> Self:
        """Order by the lower bound of the speedup, like the ranking."""
        return self.order_by(
            F("evaluation__speedup_low").desc(nulls_last=True),
            F("evaluation__speedup").desc(nulls_last=True),
            "evaluation__time_us",
            "number",
        )


class Kernel(models.Model):
    """Store one generated program, its author and its reason.

    `key` is the name that the strategy gave it, unique within the run.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="kernels")
    number = models.PositiveIntegerField()
    key = models.CharField(max_length=120)
    title = TitleField(max_length=200, blank=True)
    author_kind = models.CharField(max_length=10, choices=AuthorKind.choices)
    author = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    language = models.CharField(max_length=10)
    source = models.TextField()
    tunables = models.JSONField(default=dict, blank=True)
    flags = models.JSONField(default=list, blank=True)
    content_hash = models.CharField(max_length=64, db_index=True)
    hypothesis = models.ForeignKey(
        Hypothesis, null=True, blank=True, on_delete=models.SET_NULL, related_name="kernels"
    )
    call = models.ForeignKey("LlmCall", null=True, blank=True, on_delete=models.SET_NULL, related_name="kernels")
    report = models.TextField(blank=True)
    meta = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    parents: models.ManyToManyField[Kernel, KernelParent] = models.ManyToManyField(
        "self", through="KernelParent", symmetrical=False, related_name="children"
    )

    # set by `optimizer.queries.headline.show_stated`, for pages
    against_parent: models.Model | None

    objects = KernelQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "number"], name="one_number_per_kernel"),
            models.UniqueConstraint(fields=["run", "key"], name="one_key_per_kernel"),
        ]
        indexes = [GinIndex(KERNEL_WORDS, name="kernel_words")]
        ordering = ["run", "number"]

    def __str__(self) -> str:
        return f"#{self.number} {self.title}".strip()

    def as_source(self) -> Source:
        """Return the source with its tunables and flags, as the runners take it."""
        return Source(Language(self.language), self.source, dict(self.tunables), tuple(self.flags))


class KernelParent(models.Model):
    """Store an edge of the ancestry graph. Rank 0 is the base; rank 1 is the reference or second parent."""

    kernel = models.ForeignKey(Kernel, on_delete=models.CASCADE, related_name="parent_links")
    parent = models.ForeignKey(Kernel, on_delete=models.CASCADE, related_name="child_links")
    rank = models.PositiveSmallIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["kernel", "rank"], name="one_parent_per_rank"),
            models.CheckConstraint(condition=~Q(kernel=models.F("parent")), name="no_kernel_is_its_own_parent"),
        ]

    def __str__(self) -> str:
        return f"{self.parent} → {self.kernel}"

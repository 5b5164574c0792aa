"""Kernels and their family tree. Source, tunables and flags never change once stored."""

from __future__ import annotations

from typing import Self

from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q

from optimizer.models.choices import AuthorKind, EvaluationStatus
from optimizer.models.hypothesis import Hypothesis
from optimizer.models.run import Run
from optimizer.models.search_text import KERNEL_WORDS
from optimizer.models.team import User
from runners.job import Language, Source


class KernelQuerySet(models.QuerySet["Kernel"]):
    """Verbs of the kernels table."""

    def for_table(self) -> Self:
        """With what a row of a run's kernel table shows."""
        return self.select_related("hypothesis", "evaluation").order_by("number")

    def rankable(self) -> Self:
        """Those that may lead: correct, timed, and their claim, if they make one, confirmed by the referee."""
        return self.filter(
            evaluation__status=EvaluationStatus.CORRECT,
            evaluation__time_us__isnull=False,
            evaluation__unconfirmed=False,
        )


class Kernel(models.Model):
    """One generation: text, who wrote it and why. `key` is the strategy's name for it, unique in the run."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="kernels")
    number = models.PositiveIntegerField()
    key = models.CharField(max_length=120)
    title = models.CharField(max_length=200, blank=True)
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
        """The text as the runners take it."""
        return Source(Language(self.language), self.source, dict(self.tunables), tuple(self.flags))


class KernelParent(models.Model):
    """An edge of the family tree; rank 0 is the base, 1 the reference or second parent."""

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

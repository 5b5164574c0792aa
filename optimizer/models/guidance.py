"""Store instructions from people to the agents.

An instruction is part of every later prompt to which it applies, until it is withdrawn.
"""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import QuerySet
from django.utils import timezone

from optimizer.models.kernel import Kernel
from optimizer.models.review import Comment
from optimizer.models.run import Run
from optimizer.models.team import User


class GuidanceQuerySet(models.QuerySet["Guidance"]):
    """Add the filters of the guidance table."""

    def standing(self) -> Self:
        """Return the instructions that have not been withdrawn."""
        return self.filter(withdrawn_at=None)


class Guidance(models.Model):
    """Store one instruction to the agents of a run.

    With `kernel` set, it applies only to prompts about that kernel or one of its descendants. `comment` is the review
    comment it was written in; None means a note on the run's page. `text` is a copy: editing the comment later does
    not change what the agents were told.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="guidance_notes")
    kernel = models.ForeignKey(
        Kernel, null=True, blank=True, on_delete=models.CASCADE, related_name="guidance_notes"
    )
    comment = models.OneToOneField(
        Comment, null=True, blank=True, on_delete=models.SET_NULL, related_name="guidance"
    )
    author = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    text = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    withdrawn_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")

    objects = GuidanceQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "guidance"
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.text[:60]

    @property
    def ref(self) -> str:
        """Return the name under which `LlmCall.context_report` records that a prompt contained this instruction."""
        return f"guidance-{self.pk}"

    def followers(self) -> QuerySet[Kernel]:
        """Return the kernels whose prompt contained this instruction, in order of their number."""
        told = Kernel.objects.filter(run=self.run_id, call__context_report__taken__contains=[{"ref": self.ref}])
        return told.order_by("number")

    def withdraw(self, user: User) -> None:
        """Keep the instruction out of all later prompts and save."""
        self.withdrawn_at, self.withdrawn_by = timezone.now(), user
        self.save(update_fields=["withdrawn_at", "withdrawn_by"])

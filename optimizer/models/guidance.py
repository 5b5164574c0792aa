"""What people tell the agents. It enters every later prompt it applies to, until it is withdrawn."""

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
    """Verbs of guidance."""

    def standing(self) -> Self:
        """What has not been withdrawn."""
        return self.filter(withdrawn_at=None)


class Guidance(models.Model):
    """One instruction to the agents of a run. With `kernel` it holds for that kernel's lineage alone: prompts about it
    or a descendant of it. `comment` is where it was said, None for a note written on the run's page. The text is what
    was said then: editing the comment does not change what agents were told."""

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
        """Its name in `LlmCall.context_report`, by which a prompt and its kernel lead back here."""
        return f"guidance-{self.pk}"

    def followers(self) -> QuerySet[Kernel]:
        """Kernels whose prompt held it, in order."""
        told = Kernel.objects.filter(run=self.run_id, call__context_report__taken__contains=[{"ref": self.ref}])
        return told.order_by("number")

    def withdraw(self, user: User) -> None:
        """No prompt from now on holds it. Saves."""
        self.withdrawn_at, self.withdrawn_by = timezone.now(), user
        self.save(update_fields=["withdrawn_at", "withdrawn_by"])

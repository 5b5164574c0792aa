"""Store what was compiled ahead: variants of a kernel that were built and not run."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from optimizer.models.job import Job
from optimizer.models.kernel import Kernel
from optimizer.models.run import Run


class AheadBatch(models.Model):
    """Store one request to compile variants of the kernel `basis`.

    `variants` are `runners.job.Variant` as JSON, and `builds` the `AheadBuild` of each, in the same order, once the
    batch has finished. `error` says why nothing was compiled.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="ahead_batches")
    basis = models.ForeignKey(Kernel, on_delete=models.CASCADE, related_name="+")
    job = models.OneToOneField(Job, null=True, blank=True, on_delete=models.CASCADE, related_name="ahead_batch")
    key = models.CharField(max_length=100)
    variants = models.JSONField()
    builds = models.JSONField(default=list, blank=True)
    error = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "key"], name="one_ahead_batch_per_key")]
        indexes = [
            # The run's open batch, one among many ended ones.
            models.Index(fields=["run"], condition=Q(finished_at__isnull=True), name="ahead_batch_open"),
        ]
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{len(self.variants)} variants of {self.basis_id} compiled ahead"

    def mark_finished(self, builds: list[object], error: str = "") -> None:
        """Store the builds, or why there are none, and save the row."""
        self.builds, self.error, self.finished_at = builds, error, timezone.now()
        self.save(update_fields=["builds", "error", "finished_at"])

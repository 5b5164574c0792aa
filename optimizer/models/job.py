"""Store the job queue. The row is the truth; a broker message only asks somebody to look at it."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Coalesce

from optimizer.models.choices import JobState
from optimizer.models.evaluation import Evaluation

# Jobs of one queue and priority go in this order, and `Job.turn` is its value.
TURN = Coalesce("place", "id", output_field=models.BigIntegerField())


class Job(models.Model):
    """Store one piece of work for a runner.

    A runner claims a job by a conditional update that sets a lease and a new fencing token. A result is accepted
    once, and only from the holder of the current token. A job belongs to an evaluation, or to a tool call or a batch
    compiled ahead, which names it (`ToolCall.job`, `AheadBatch.job`). Jobs of one priority go in the order of their
    `place`, or of their id where they have none. `signature` is the site's, over the complete job
    (`runners.signing.jobs`).
    """

    evaluation = models.OneToOneField(
        Evaluation, null=True, blank=True, on_delete=models.CASCADE, related_name="job"
    )
    queue = models.CharField(max_length=60)
    dispatcher = models.CharField(max_length=20, default="celery")
    spec = models.JSONField()
    signature = models.CharField(max_length=200, blank=True, default="", db_default="")
    priority = models.SmallIntegerField(default=0)
    place = models.BigIntegerField(null=True, blank=True)
    state = models.CharField(max_length=14, choices=JobState.choices, default=JobState.QUEUED)
    worker = models.CharField(max_length=100, blank=True)
    fence = models.PositiveIntegerField(default=0)
    attempts = models.PositiveSmallIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    cancel_requested = models.BooleanField(default=False)
    error = models.TextField(blank=True)
    external = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            # a claim takes what a lost worker left, or else the oldest of the lowest priority number; each is found
            # at the head of its own index, however many jobs wait or run
            models.Index(
                "queue", "priority", Coalesce("place", "id"), condition=Q(state="queued"), name="job_in_turn"
            ),
            # the history of a runner, newest first
            models.Index(fields=["worker", "-id"], name="job_of_worker"),
            models.Index(fields=["queue", "lease_until"], condition=Q(state="running"), name="job_leased"),
        ]

    def __str__(self) -> str:
        return f"job {self.pk} on {self.queue}: {self.state}"

    @property
    def turn(self) -> int:
        """Return the place if the job has one, else the id."""
        return self.pk if self.place is None else self.place


class JobLog(models.Model):
    """Store a chunk of a job's live log.

    Chunks are unique per fencing token and number, so that a repeated upload changes nothing.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="logs")
    fence = models.PositiveIntegerField()
    seq = models.PositiveIntegerField()
    text = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "fence", "seq"], name="one_log_chunk_per_seq")]
        ordering = ["job", "fence", "seq"]

    def __str__(self) -> str:
        return f"log {self.job_id}/{self.fence}/{self.seq}"

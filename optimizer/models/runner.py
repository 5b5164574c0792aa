"""Store the processes that evaluate kernels, as they report themselves."""

from __future__ import annotations

import datetime as dt

from django.db import models
from django.utils import timezone

from optimizer.models.job import Job
from optimizer.models.target import Target
from optimizer.models.titles import TitleField

LOST_AFTER = dt.timedelta(seconds=60)


class Runner(models.Model):
    """Store one worker on one device.

    A runner is alive while its heartbeat is younger than `LOST_AFTER`. A draining runner finishes its current job and
    claims no other. `noise_floor` is the newest `runners.job.NoiseFloor` that it reported, as JSON.
    """

    name = models.CharField(max_length=120, unique=True)
    target = models.ForeignKey(Target, on_delete=models.CASCADE, related_name="runners")
    queues = models.JSONField(default=list)
    device = models.CharField(max_length=120, blank=True)
    facts = models.JSONField(default=dict, blank=True)
    sandbox = models.CharField(max_length=20, blank=True)
    noise_floor = models.JSONField(default=dict, blank=True)
    current_job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    heartbeat_at = models.DateTimeField()
    started_at = models.DateTimeField(auto_now_add=True)
    draining = models.BooleanField(default=False)
    drain_note = TitleField(max_length=300, blank=True)

    def __str__(self) -> str:
        return self.name

    @property
    def is_alive(self) -> bool:
        """Return True while the last heartbeat is recent enough."""
        return timezone.now() - self.heartbeat_at < LOST_AFTER

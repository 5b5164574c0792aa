"""Targets that runs and leaderboards refer to. The hardware's facts live in `runners.targets`; what runners have
measured on the real device is kept here and overrides the data sheet."""

from __future__ import annotations

from django.db import models


class Target(models.Model):
    """A kind of hardware by its key in `runners.targets` (cpu, gfx942-mi300x, sm_90-h100 …)."""

    key = models.SlugField(max_length=40, unique=True)
    title = models.CharField(max_length=120)
    measured = models.JSONField(default=dict, blank=True)
    measured_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.title

"""Store the targets that runs and leaderboards refer to.

Hardware facts are in `runners.targets`; what a runner measured on its device is in the results of its jobs
(`optimizer.queries.runners.ceilings_of`).
"""

from __future__ import annotations

from django.db import models


class Target(models.Model):
    """Store a kind of hardware under its key in `runners.targets` (cpu, gfx942-mi300x, sm_90-h100 …)."""

    key = models.SlugField(max_length=40, unique=True)
    title = models.CharField(max_length=120)

    def __str__(self) -> str:
        return self.title

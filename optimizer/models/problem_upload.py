"""Store problems that people have uploaded and that are not added yet: read and tried by a worker, shown to them."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from optimizer.models.problem import ProblemVersion
from optimizer.models.team import Team, User


def origin_of(user: User) -> str:
    """Return the origin (`Problem.origin`) of problems that the person uploads."""
    return f"uploaded by {user.get_username()}"


class UploadState(models.TextChoices):
    """List the states of an uploaded problem."""

    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    READY = "ready", "Ready"
    REFUSED = "refused", "Refused"
    ADDED = "added", "Added"

    @property
    def is_open(self) -> bool:
        """Return True while a worker has to do with it."""
        return self in {UploadState.QUEUED, UploadState.RUNNING}

    @property
    def tone(self) -> str:
        """Return the colour token of the state."""
        return {"running": "live", "ready": "good", "refused": "bad", "added": "good"}.get(self.value, "muted")


class ProblemUploadQuerySet(models.QuerySet["ProblemUpload"]):
    """Add the filters of uploads."""

    def of(self, user: User) -> Self:
        """Return the person's own: nobody else sees an upload before it is added."""
        return self.filter(created_by=user).order_by("-pk")

    def light(self) -> Self:
        """Return them without the file and what was found in it, which together have megabytes."""
        return self.defer("content", "inspection")

    def unfinished(self) -> Self:
        """Return those that a worker has to do with."""
        return self.filter(state__in=[UploadState.QUEUED, UploadState.RUNNING])

    def claimable(self) -> Self:
        """Return those that wait, and those whose worker was lost."""
        return self.filter(Q(state=UploadState.QUEUED) | Q(state=UploadState.RUNNING, lease_until__lt=Now()))


class ProblemUpload(models.Model):
    """Store one upload until it is added or discarded.

    `content` is the file as it was sent, which only sandboxed processes read; it goes as soon as a worker is through,
    except for pasted text that was refused, which its author corrects. `team` will see the problem, None: everybody.
    `inspection` is a
    `runners.problems.uploading.Inspection` as JSON once a worker has made one; `complaints` says why the upload was
    refused. `fence` grows with every claim, so that a worker that was believed lost cannot overwrite a later result.
    """

    created_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    name = models.SlugField(max_length=80)
    team = models.ForeignKey(Team, null=True, on_delete=models.CASCADE, related_name="+")
    file_name = models.CharField(max_length=200)
    content = models.BinaryField()
    state = models.CharField(max_length=10, choices=UploadState.choices, default=UploadState.QUEUED)
    complaints = models.JSONField(default=list)
    inspection = models.JSONField(null=True)
    fence = models.PositiveIntegerField(default=0)
    lease_until = models.DateTimeField(null=True)
    version = models.ForeignKey(ProblemVersion, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ProblemUploadQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(
                fields=["created_at"], condition=Q(state__in=["queued", "running"]), name="unfinished_uploads"
            )
        ]

    def __str__(self) -> str:
        return self.name

    def get_state(self) -> UploadState:
        """Return the state with its label and tone."""
        return UploadState(self.state)

    @property
    def is_text(self) -> bool:
        """Return True for a Python module, which the form shows in its field."""
        return self.file_name.endswith(".py")

    @property
    def text(self) -> str:
        """Return what was pasted, for its author to correct."""
        return bytes(self.content).decode("utf-8", "replace")

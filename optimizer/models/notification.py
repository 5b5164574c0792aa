"""Store notifications, the preferences of each person, and which runs a person follows."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Q
from django.utils import timezone

from optimizer.models.run import Run
from optimizer.models.team import User


class NotificationKind(models.TextChoices):
    """List the kinds of notifications. A person can switch each of them off, on the site and as mail."""

    MENTION = "mention", "Mentions of you"
    REPLY = "reply", "Replies in your threads"
    REVIEW = "review", "Review requests for your team, and reviews of your kernels"
    SUGGESTION = "suggestion", "Results of edits that you suggested"
    BEST = "best", "New best kernels in runs you follow"
    ENDED = "ended", "Ends of runs you follow"
    STUCK = "stuck", "Runs you follow that need attention"
    BUDGET = "budget", "Runs you follow that have used 80 % of a budget"
    RELEASE = "release", "Releases of your team's kernels"
    CAMPAIGN = "campaign", "Ends of your campaigns"
    WATCH = "watch", "Regressions of released kernels"

    @property
    def in_app(self) -> bool:
        """Return whether the kind is shown by default. A run may change its leader every few minutes."""
        return self is not NotificationKind.BEST

    @property
    def by_mail(self) -> bool:
        """Return whether the kind is mailed by default: only news that wait for the person's answer are."""
        return self in {NotificationKind.MENTION, NotificationKind.REPLY, NotificationKind.REVIEW}


class NotificationQuerySet(models.QuerySet["Notification"]):
    """Add the filters of the notification table."""

    def readable_by(self, user: User) -> Self:
        """Return the person's own notifications about runs that they may still see."""
        # Access is checked when reading, because it may have been lost since the notification was written.
        seen = Run.objects.visible_to(user).order_by().values("pk")
        return self.filter(Q(run=None) | Q(run__in=seen), user=user)

    def unread(self) -> Self:
        """Return the notifications that have not been read."""
        return self.filter(read_at=None)

    def mark_read(self) -> int:
        """Mark all as read and return how many were unread."""
        return self.unread().update(read_at=timezone.now())


class Notification(models.Model):
    """Store one notification for one person.

    `key` names the cause and is unique per person, so that nothing is announced twice. `link` is a path on this site.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="notifications")
    kind = models.CharField(max_length=10, choices=NotificationKind.choices)
    key = models.CharField(max_length=120)
    run = models.ForeignKey(Run, null=True, blank=True, on_delete=models.CASCADE, related_name="notifications")
    actor = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    text = models.CharField(max_length=300)
    link = models.CharField(max_length=300)
    by_mail = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    read_at = models.DateTimeField(null=True, blank=True)
    mailed_at = models.DateTimeField(null=True, blank=True)

    objects = NotificationQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="one_notification_per_cause")]
        indexes = [
            models.Index(fields=["user"], condition=Q(read_at=None), name="notification_unread"),
            models.Index(
                fields=["user"],
                condition=Q(by_mail=True, mailed_at=None, read_at=None),
                name="notification_unmailed",
            ),
        ]
        ordering = ["-pk"]

    def __str__(self) -> str:
        return self.text


class NotificationChoice(models.Model):
    """Store a person's preference for one kind. Without a row, the defaults of the kind apply."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="notification_choices")
    kind = models.CharField(max_length=10, choices=NotificationKind.choices)
    in_app = models.BooleanField(default=True)
    by_mail = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "kind"], name="one_choice_per_kind")]

    def __str__(self) -> str:
        return f"{self.user}: {self.kind}"


class Follow(models.Model):
    """Record that a person follows a run. Whoever starts a run follows it automatically."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="follows")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="follows")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "run"], name="one_follow_per_run")]

    def __str__(self) -> str:
        return f"{self.user} follows {self.run_id}"

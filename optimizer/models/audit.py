"""Keep an append-only log of the actions that matter for accountability.

A database trigger (see the migration that creates the table) refuses updates and deletes. Users, teams and runs are
therefore stored as plain ids beside their names at that moment: a foreign key would have to change when its row is
deleted.
"""

from __future__ import annotations

from typing import Self

from django.db import models

from optimizer.models.team import Team, User


class AuditAction(models.TextChoices):
    """List the actions that are logged."""

    RUN_STARTED = "run.started", "Started a run"
    RUN_PAUSED = "run.paused", "Paused a run"
    RUN_RESUMED = "run.resumed", "Resumed a run"
    RUN_STOPPED = "run.stopped", "Stopped a run"
    RUN_FINISHED = "run.finished", "Finished a run"
    RUN_BUDGET = "run.budget", "Changed a run's budget"
    RUN_PRIVACY = "run.privacy", "Changed a run's visibility"
    CAMPAIGN_STARTED = "campaign.started", "Started a campaign"
    CAMPAIGN_PAUSED = "campaign.paused", "Paused a campaign"
    CAMPAIGN_RESUMED = "campaign.resumed", "Resumed a campaign"
    CAMPAIGN_STOPPED = "campaign.stopped", "Stopped a campaign"
    CAMPAIGN_LIMITS = "campaign.limits", "Changed a campaign's limits"
    CAMPAIGN_CONTINUED = "campaign.continued", "Continued a campaign with larger budgets"
    RETIME_STARTED = "retime.started", "Re-timed released kernels"
    LEADERS_RETIMED = "leaders.retimed", "Re-timed the top of a leaderboard"
    KERNEL_REVIEWED = "kernel.reviewed", "Reviewed a kernel"
    RELEASE_ASKED = "release.asked", "Requested a release"
    RELEASE_MADE = "release.made", "Released a kernel"
    RELEASE_WITHDRAWN = "release.withdrawn", "Withdrew a release"
    ENDTOEND_STORED = "endtoend.stored", "Stored an end-to-end report"
    MEMBER_ADDED = "member.added", "Joined"
    MEMBER_ROLE = "member.role", "Changed a role"
    MEMBER_REMOVED = "member.removed", "Removed a member"
    MEMBER_LEFT = "member.left", "Left"
    INVITATION_MADE = "invitation.made", "Invited a member"
    INVITATION_REVOKED = "invitation.revoked", "Revoked an invitation"
    SERVICE_ADDED = "service.added", "Created a service account"
    SERVICE_ENDED = "service.ended", "Disabled a service account"
    TOKEN_MADE = "token.made", "Created an API token"  # a kind of action, not a secret
    TOKEN_REVOKED = "token.revoked", "Revoked an API token"
    TEAM_MADE = "team.made", "Created a team"
    TEAM_CHANGED = "team.changed", "Changed the team's settings"
    PROVIDER_SAVED = "provider.saved", "Changed a model provider"
    PROVIDER_DELETED = "provider.deleted", "Removed a model provider"
    PROBLEM_ADDED = "problem.added", "Added a problem"
    EXPORTED = "audit.exported", "Exported this log"


class AuditQuerySet(models.QuerySet["AuditEntry"]):
    """Add the filters of the audit log."""

    def of_team(self, team: Team) -> Self:
        """Return the entries of one team, newest first."""
        return self.filter(team_id=team.pk).order_by("-pk")


class AuditEntry(models.Model):
    """Store one logged action.

    `subject` names the object in words; `details` holds small facts and never a secret.
    """

    at = models.DateTimeField(auto_now_add=True)
    action = models.CharField(max_length=30, choices=AuditAction.choices)
    # Plain numbers instead of foreign keys, see above.
    actor_id = models.BigIntegerField(null=True)
    actor_name = models.CharField(max_length=150)
    team_id = models.BigIntegerField(null=True)
    team_name = models.CharField(max_length=100, blank=True)
    run_id = models.BigIntegerField(null=True)
    subject = models.CharField(max_length=300, blank=True)
    details = models.JSONField(default=dict)

    objects = AuditQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["team_id", "-id"], name="audit_of_team")]
        ordering = ["-pk"]
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return f"{self.actor_name}: {self.get_action_display()} {self.subject}".strip()

    @classmethod
    def add(
        cls, action: AuditAction, actor: User | None, team: Team | None, subject: str, run_id: int | None,
        details: dict[str, object],
    ) -> AuditEntry:  # fmt: skip
        """Append one entry. `actor` None is the system itself."""
        return cls.objects.create(
            action=action,
            actor_id=actor.pk if actor else None,
            # The name at this moment: accounts can be renamed later.
            actor_name=actor.get_username() if actor else "the system",
            team_id=team.pk if team else None,
            team_name=team.name if team else "",
            run_id=run_id,
            subject=subject[:300],
            details=details,
        )

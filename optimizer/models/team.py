"""Store people and teams. A team owns runs; a role says what a member may do with them."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser
from django.db import models

from optimizer.models.choices import TeamRole
from optimizer.models.titles import TitleField


class User(AbstractUser):
    """Store a person or a service account."""

    is_service_account = models.BooleanField(default=False)

    def role_in(self, team: Team) -> TeamRole | None:
        """Return the person's role, or None for an outsider. Administrators act as owners everywhere."""
        if self.is_superuser:
            return TeamRole.OWNER
        membership = Membership.objects.filter(team=team, user=self).first()
        return TeamRole(membership.role) if membership else None


class Team(models.Model):
    """Store a team, the unit of visibility: nobody else can see what belongs to it.

    The rules for releases are `approvals_needed` different people and, with `rerun_needed`, a second measurement that
    agrees with the first.
    """

    name = TitleField(max_length=100)
    slug = models.SlugField(unique=True)
    approvals_needed = models.PositiveSmallIntegerField(default=2)
    rerun_needed = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)
    members: models.ManyToManyField[User, Membership] = models.ManyToManyField(
        User, through="Membership", related_name="teams"
    )

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(approvals_needed__range=(1, 9)), name="team_approvals_needed")
        ]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """Store the role of one person in one team."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=TeamRole.choices, default=TeamRole.VIEWER)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="one_membership_per_person_and_team")]

    def __str__(self) -> str:
        return f"{self.user} in {self.team} as {self.role}"

"""Ways into a team: a link that works once, until it expires. Only its hash is stored."""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from typing import Self

from django.db import models
from django.db.models import Q
from django.utils import timezone

from optimizer.models.choices import TeamRole
from optimizer.models.team import Team, User


class InvitationQuerySet(models.QuerySet["Invitation"]):
    """Verbs of invitations."""

    def open(self) -> Self:
        """Those that still let somebody in."""
        return self.filter(used_at=None, revoked_at=None, expires_at__gt=timezone.now())


class Invitation(models.Model):
    """One link for one person, with the role that they get. `hash` is the SHA-256 of a token of 256 random bits."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=16, choices=TeamRole.choices, default=TeamRole.VIEWER)
    note = models.CharField(max_length=200, blank=True)
    hash = models.CharField(max_length=64, unique=True)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    used_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = InvitationQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return self.note or f"invitation {self.pk}"

    @classmethod
    def make(
        cls, team: Team, role: TeamRole, author: User, note: str, expires_at: dt.datetime
    ) -> tuple[Invitation, str]:
        """A new invitation, and its token: the only time that it can be read."""
        token = secrets.token_urlsafe(32)
        row = cls.objects.create(
            team=team, role=role, note=note, created_by=author, expires_at=expires_at, hash=_hash_of(token)
        )
        return row, token

    @classmethod
    def find(cls, token: str) -> Invitation | None:
        """The open invitation behind a token, or None."""
        return cls.objects.open().select_related("team", "created_by").filter(hash=_hash_of(token)).first()

    def claim(self, user: User) -> bool:
        """Use it up; True for the one caller who did."""
        mine = Invitation.objects.open().filter(pk=self.pk)
        return mine.update(used_at=timezone.now(), used_by=user) == 1

    def revoke(self) -> bool:
        """End it unused; False where it had ended already."""
        still = Invitation.objects.filter(Q(used_at=None), pk=self.pk, revoked_at=None)
        return still.update(revoked_at=timezone.now()) == 1


def _hash_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()

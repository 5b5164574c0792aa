"""Store invitations to a team: links that work once and expire. Only a hash of the link's token is stored."""

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
from optimizer.models.titles import TitleField


class InvitationQuerySet(models.QuerySet["Invitation"]):
    """Add the filters of the invitation table."""

    def open(self) -> Self:
        """Return the invitations that can still be accepted."""
        return self.filter(used_at=None, revoked_at=None, expires_at__gt=timezone.now())


class Invitation(models.Model):
    """Store one invitation for one person, with the role that it grants.

    `hash` is the SHA-256 of a token of 256 random bits.
    """

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=16, choices=TeamRole.choices, default=TeamRole.VIEWER)
    note = TitleField(max_length=200, blank=True)
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
        """Create an invitation. Return its row and the token, which cannot be read again later."""
        token = secrets.token_urlsafe(32)
        row = cls.objects.create(
            team=team, role=role, note=note, created_by=author, expires_at=expires_at, hash=_hash_of(token)
        )
        return row, token

    @classmethod
    def find(cls, token: str) -> Invitation | None:
        """Return the open invitation of a token, or None."""
        return cls.objects.open().select_related("team", "created_by").filter(hash=_hash_of(token)).first()

    def claim(self, user: User) -> bool:
        """Use up the invitation. Return True for exactly one of several concurrent callers."""
        # A conditional update: of two people with the same link only one gets in.
        mine = Invitation.objects.open().filter(pk=self.pk)
        return mine.update(used_at=timezone.now(), used_by=user) == 1

    def revoke(self) -> bool:
        """End an unused invitation. Return False when it was used or revoked before."""
        still = Invitation.objects.filter(Q(used_at=None), pk=self.pk, revoked_at=None)
        return still.update(revoked_at=timezone.now()) == 1


def _hash_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()

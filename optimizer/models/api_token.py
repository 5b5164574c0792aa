"""Tokens for the API. Only a hash is stored; the token itself is shown once, when it is made."""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from typing import Self

from django.db import models
from django.db.models import Q
from django.utils import timezone

from optimizer.models.team import User

PREFIX = "ks_"
SEEN_EVERY = dt.timedelta(minutes=5)


class TokenScope(models.TextChoices):
    """What a token may do, on top of what its owner may. A token does only what it names."""

    READ = "read", "Read runs, kernels and measurements"
    RUNS = "runs", "Start and steer runs"
    INBOX = "inbox", "Answer prompts in the inbox"
    REVIEW = "review", "Comment, write findings, approve and release"
    RUNNERS = "runners", "Take runners out of service and back"
    WEBHOOKS = "webhooks", "Set up and remove webhooks"
    PROVIDERS = "providers", "Change model servers, but for their keys"


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    """Verbs of the token table."""

    def usable(self) -> Self:
        """Neither revoked nor expired, of people who may sign in."""
        alive = Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())
        return self.filter(alive, revoked_at__isnull=True, user__is_active=True)


class ApiToken(models.Model):
    """One token of one person. Tokens carry 256 random bits, so a plain SHA-256 cannot be searched backwards."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    hash = models.CharField(max_length=64, unique=True)
    hint = models.CharField(max_length=12)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    seen_at = models.DateTimeField(null=True, blank=True)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.name} ({self.hint}…)"

    @classmethod
    def make(
        cls, user: User, name: str, scopes: list[TokenScope], expires_at: dt.datetime | None = None
    ) -> tuple[ApiToken, str]:
        """A new token's row, and the token: the only time that it can be read."""
        secret = PREFIX + secrets.token_urlsafe(32)
        row = cls.objects.create(
            user=user,
            name=name,
            hash=hash_of(secret),
            hint=secret[:8],
            scopes=[str(scope) for scope in scopes],
            expires_at=expires_at,
        )
        return row, secret

    @classmethod
    def find(cls, secret: str) -> ApiToken | None:
        """The usable row behind a presented token, or None. Notes, now and then, that it was seen."""
        found = cls.objects.usable().select_related("user").filter(hash=hash_of(secret)).first()
        if found is not None and (found.seen_at is None or timezone.now() - found.seen_at > SEEN_EVERY):
            found.seen_at = timezone.now()
            found.save(update_fields=["seen_at"])
        return found

    def allows(self, scope: TokenScope) -> bool:
        """Whether the token names the scope."""
        return scope in self.scopes

    def revoke(self) -> None:
        """End the token for good."""
        self.revoked_at = self.revoked_at or timezone.now()
        self.save(update_fields=["revoked_at"])


def hash_of(secret: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(secret.encode()).hexdigest()

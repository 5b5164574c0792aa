"""Store API tokens as hashes.

The token itself is shown once, when it is created.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from typing import Self

from django.db import models
from django.db.models import Q
from django.utils import timezone

from optimizer.models.team import User
from optimizer.models.titles import TitleField

PREFIX = "ks_"
SEEN_EVERY = dt.timedelta(minutes=5)


class TokenScope(models.TextChoices):
    """List the permissions that a token can carry.

    A token grants the intersection of its scopes with the rights of its owner.
    """

    READ = "read", "Read runs, kernels and measurements"
    RUNS = "runs", "Start and steer runs"
    INBOX = "inbox", "Answer prompts in the inbox"
    REVIEW = "review", "Comment, write findings, approve and release"
    RUNNERS = "runners", "Drain runners and put them back into service"
    WEBHOOKS = "webhooks", "Set up and remove webhooks"
    PROVIDERS = "providers", "Change model servers, except their keys"


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    """Add the filters of the token table."""

    def usable(self) -> Self:
        """Return tokens that are neither revoked nor expired and whose owner may sign in."""
        alive = Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())
        return self.filter(alive, revoked_at__isnull=True, user__is_active=True)


class ApiToken(models.Model):
    """Store one token of one user.

    Tokens carry 256 random bits, so a plain SHA-256 cannot be inverted by brute force and needs no salt.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = TitleField(max_length=100)
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
        """Create a token. Return its row and the secret, which cannot be read again later."""
        # The prefix lets secret scanners recognise a token that was published by mistake.
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
        """Return the usable row of a presented secret, or None.

        Updates `seen_at` at most once per `SEEN_EVERY`.
        """
        found = cls.objects.usable().select_related("user").filter(hash=hash_of(secret)).first()
        # A write on every request would make readers of the API contend for the token's row.
        if found is not None and (found.seen_at is None or timezone.now() - found.seen_at > SEEN_EVERY):
            found.seen_at = timezone.now()
            found.save(update_fields=["seen_at"])
        return found

    def allows(self, scope: TokenScope) -> bool:
        """Return whether the token carries the scope."""
        return scope in self.scopes

    def revoke(self) -> None:
        """Revoke the token permanently; a second call keeps the first revocation time."""
        self.revoked_at = self.revoked_at or timezone.now()
        self.save(update_fields=["revoked_at"])


def hash_of(secret: str) -> str:
    """Return the SHA-256 that is stored in place of the token, as 64 hexadecimal digits."""
    return hashlib.sha256(secret.encode()).hexdigest()

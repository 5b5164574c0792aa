"""Store where a person is signed in, so that they can check and end sessions that are not theirs."""

from __future__ import annotations

from django.contrib.sessions.models import Session
from django.db import models
from django.utils import timezone

from optimizer.models.team import User

# What browsers say of themselves; each also names those after it, so the first found is the one.
_BROWSERS = ("Edg", "OPR", "Firefox", "HeadlessChrome", "Chrome", "Safari", "curl")
_SYSTEMS = ("Android", "iPhone", "iPad", "Windows", "Mac OS", "CrOS", "Linux")
_SHOWN = {"Edg": "Edge", "OPR": "Opera", "Mac OS": "macOS", "CrOS": "ChromeOS"}


class SignIn(models.Model):
    """Store one signed-in browser. `key` is the session key and is never shown."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="sign_ins")
    key = models.CharField(max_length=40, unique=True, editable=False)
    address = models.GenericIPAddressField(null=True)
    browser = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    seen_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-seen_at"]

    def __str__(self) -> str:
        return self.browser or "a browser"

    @property
    def label(self) -> str:
        """Return the browser in words, as far as its user agent reveals it: `Firefox on Linux`."""
        names = [next((name for name in known if name in self.browser), "") for known in (_BROWSERS, _SYSTEMS)]
        words = " on ".join(_SHOWN.get(name, name) for name in names if name)
        return words or self.browser[:60] or "unknown"

    @classmethod
    def living_of(cls, user: User) -> list[SignIn]:
        """Return the sign-ins whose session still exists, last seen first, and delete the rows of all others."""
        rows = list(cls.objects.filter(user=user))
        # Sessions end by expiry or sign-out elsewhere, and nothing tells this table.
        alive = Session.objects.filter(session_key__in=[row.key for row in rows], expire_date__gt=timezone.now())
        keys = set(alive.values_list("session_key", flat=True))
        cls.objects.filter(user=user).exclude(key__in=keys).delete()
        return [row for row in rows if row.key in keys]

    def end(self) -> None:
        """Sign that browser out."""
        Session.objects.filter(session_key=self.key).delete()
        self.delete()

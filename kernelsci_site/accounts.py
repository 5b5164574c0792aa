"""Configure django-allauth: limits of attempts, the second factor, and sign-in through a company's server.

Passwords, invitations and pages are our own. Nobody can sign up on their own unless that server vouches for them.
"""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.mfa.adapter import DefaultMFAAdapter
from django.http import HttpRequest

from optimizer.secrets import keys


class AccountAdapter(DefaultAccountAdapter):
    """Refuse accounts without an invitation, count attempts by address, and suppress allauth's messages."""

    error_messages = {
        **DefaultAccountAdapter.error_messages,
        "too_many_login_attempts": "Too many failed attempts. Try again in a quarter of an hour.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Return False, as accounts come from invitations and, where configured, from the company's server."""
        return False

    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """Suppress the message, because our own pages report what happened."""

    def get_client_ip(self, request: HttpRequest) -> str:
        """Return the caller's address as `kernelsci_site.proxies` found it; behind a Unix socket there may be none."""
        return str(request.META.get("REMOTE_ADDR") or "::")

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        # By address too: counted by the name alone, anybody could keep anybody else out by guessing.
        return f"{self.get_client_ip(request)}/{str(credentials.get('username', '')).casefold()}"


class SecondFactorAdapter(DefaultMFAAdapter):
    """Encrypt the seeds of one-time codes with a secret that is kept outside the database."""

    def encrypt(self, text: str) -> str:
        """Return the seed in its stored form."""
        return keys.encrypt(text)

    def decrypt(self, encrypted_text: str) -> str:
        """Return the seed. Raises keys.UnreadableKeyError."""
        return keys.decrypt(encrypted_text)

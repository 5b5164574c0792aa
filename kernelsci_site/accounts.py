"""Configure django-allauth: the second factor, and sign-in through a company's OpenID Connect server.

Passwords, invitations and pages are our own. Nobody can sign up on their own unless that server vouches for them.
"""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.mfa.adapter import DefaultMFAAdapter
from django.http import HttpRequest

from optimizer.secrets import keys


class AccountAdapter(DefaultAccountAdapter):
    """Refuse accounts without an invitation, and suppress allauth's messages."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Return False, as accounts come from invitations and, where configured, from the company's server."""
        return False

    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """Suppress the message, because our own pages report what happened."""


class SecondFactorAdapter(DefaultMFAAdapter):
    """Encrypt the seeds of one-time codes with a secret that is kept outside the database."""

    def encrypt(self, text: str) -> str:
        """Return the seed in its stored form."""
        return keys.encrypt(text)

    def decrypt(self, encrypted_text: str) -> str:
        """Return the seed. Raises keys.UnreadableKeyError."""
        return keys.decrypt(encrypted_text)

"""What django-allauth does for us: the second factor, and signing in through a company's own OpenID Connect server.
Passwords, invitations and pages are ours; nobody signs up by themselves unless that server vouches for them."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.mfa.adapter import DefaultMFAAdapter
from django.http import HttpRequest

from optimizer.llm import keys


class AccountAdapter(DefaultAccountAdapter):
    """No accounts without an invitation; no chatter."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Accounts come from invitations (and, where configured, from the company's server)."""
        return False

    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """Our pages say what happened."""


class SecondFactorAdapter(DefaultMFAAdapter):
    """Seeds of one-time codes are stored encrypted, with a secret outside the database."""

    def encrypt(self, text: str) -> str:
        """What is stored."""
        return keys.encrypt(text)

    def decrypt(self, encrypted_text: str) -> str:
        """The seed. Raises keys.UnreadableKeyError."""
        return keys.decrypt(encrypted_text)

"""Accounts of people whom a company's OpenID Connect server vouches for. Imported only where one is configured."""

from __future__ import annotations

from typing import Any

from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.http import HttpRequest


class SocialAdapter(DefaultSocialAccountAdapter):
    """A person whom the server vouches for gets an account in no team: they see nothing until they are invited."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """Whoever the server lets in."""
        return True

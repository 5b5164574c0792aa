"""Create accounts for people whom a company's OpenID Connect server vouches for.

This module is imported only where one is configured.
"""

from __future__ import annotations

from typing import Any

from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.http import HttpRequest


class SocialAdapter(DefaultSocialAccountAdapter):
    """Create an account without a team, which sees nothing until it is invited."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """Return True for whoever the server lets in."""
        return True

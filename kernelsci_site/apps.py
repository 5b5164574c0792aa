"""Configure the site's own app: system checks, static files and signal receivers. It has no models."""

from typing import Any

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in


class SiteConfig(AppConfig):
    """Register the checks of this package and its signal receivers."""

    name = "kernelsci_site"

    def ready(self) -> None:
        """Connect the receivers and register the checks, which happens when their module is imported."""
        from kernelsci_site import checks  # noqa: F401

        user_logged_in.connect(_signed_in, dispatch_uid="sign_ins")


def _signed_in(request: Any, user: Any, **_kwargs: Any) -> None:
    """Record a browser that has signed in, so that its owner can see and end the session."""
    from allauth.usersessions.models import UserSession

    # Where no middleware has run, Django leaves the request without its user.
    request.user = user
    # allauth does so only for its own flows, and invitations and the first start sign people in without them.
    UserSession.objects.create_from_request(request)

"""The site's own app: system checks, static files and what listens to what; no models."""

from typing import Any

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in
from django.db.models.signals import post_save


class SiteConfig(AppConfig):
    """Registers the checks of this package, and who listens."""

    name = "kernelsci_site"

    def ready(self) -> None:
        """Importing the module registers its checks."""
        from kernelsci_site import checks  # noqa: F401

        post_save.connect(_notice, sender="optimizer.RunEvent", dispatch_uid="notices")
        user_logged_in.connect(_signed_in, dispatch_uid="sign_ins")


def _notice(instance: Any, created: bool, **_kwargs: Any) -> None:
    """An event was stored: people may want to hear of it."""
    from optimizer.actions.notices import notice

    if created:
        notice(instance)


def _signed_in(request: Any, user: Any, **_kwargs: Any) -> None:
    """A browser has signed in: its owner can see that, and end it."""
    from optimizer.actions.account import do_note_sign_in

    do_note_sign_in(request, user)

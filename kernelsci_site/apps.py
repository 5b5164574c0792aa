"""The site's own app: system checks and static files, no models."""

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """Registers the checks of this package."""

    name = "kernelsci_site"

    def ready(self) -> None:
        """Importing the module registers its checks."""
        from kernelsci_site import checks  # noqa: F401

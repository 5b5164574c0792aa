"""Configure the Django app."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_save


class OptimizerConfig(AppConfig):
    """Configure the only Django app of the product."""

    name = "optimizer"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Queue webhook deliveries for each stored event, in the event's own transaction."""
        post_save.connect(_queue_deliveries, sender="optimizer.RunEvent", dispatch_uid="webhooks")


def _queue_deliveries(instance: Any, created: bool, **_kwargs: Any) -> None:
    # Import late: actions import models, which cannot be imported before all apps are ready.
    from optimizer.actions.webhook import queue_deliveries

    if created:
        queue_deliveries(instance)

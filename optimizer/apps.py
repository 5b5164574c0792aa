"""Django's entry to the optimizer."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_save


class OptimizerConfig(AppConfig):
    """The one Django app."""

    name = "optimizer"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Whoever follows the table of events is told here, in the transaction that stores one."""
        post_save.connect(_queue_deliveries, sender="optimizer.RunEvent", dispatch_uid="webhooks")


def _queue_deliveries(instance: Any, created: bool, **_kwargs: Any) -> None:
    from optimizer.actions.webhook import queue_deliveries

    if created:
        queue_deliveries(instance)

"""Django's entry to the optimizer."""

from django.apps import AppConfig


class OptimizerConfig(AppConfig):
    """The one Django app."""

    name = "optimizer"
    default_auto_field = "django.db.models.BigAutoField"

"""Configure the Django app."""

from django.apps import AppConfig


class OptimizerConfig(AppConfig):
    """Configure the only Django app of the product."""

    name = "optimizer"
    default_auto_field = "django.db.models.BigAutoField"

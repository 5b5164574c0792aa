"""Configure the Django app."""

from django.apps import AppConfig


class OptimizerConfig(AppConfig):
    """Configure the only Django app of the product."""

    name = "optimizer"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Watch what sockets depend on."""
        from optimizer.events.sessions import watch_sessions  # models are there only now

        watch_sessions()

"""Wire the project: settings, URLs, ASGI, the Celery application, and the servers that `manage.py up` starts."""

from kernelsci_site.celery import app as celery_app

__all__ = ["celery_app"]

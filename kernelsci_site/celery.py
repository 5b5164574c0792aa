"""Configure the Celery application.

Messages only announce work. PostgreSQL holds the queue, so a lost message costs only latency.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
from typing import Any

from celery import Celery
from celery.signals import after_setup_logger, beat_embedded_init, worker_process_init

from kernelsci_site import environment as env

PR_SET_PDEATHSIG = 1

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kernelsci_site.settings")

app = Celery("kernelsci_site")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["optimizer", "runners"])


@beat_embedded_init.connect
@worker_process_init.connect
def die_with_the_worker(**_kwargs: Any) -> None:
    """Ask the kernel to kill this child process when its worker is killed outright."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@after_setup_logger.connect
def keep_the_log_level(logger: logging.Logger, **_kwargs: Any) -> None:
    """Set the level that the environment names, which the worker's option `-l` has just overridden."""
    if level := env.text("KERNELSCI_LOG_LEVEL"):
        logger.setLevel(level)

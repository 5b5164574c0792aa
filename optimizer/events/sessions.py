"""Close sockets at once when their session ends or their person's password changes, however that comes about."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.db.models.signals import post_delete, post_save

from optimizer.events.sockets import recheck_access
from optimizer.models import User


def watch_sessions() -> None:
    """Connect to the rows themselves: sign-out, other browsers, administrators and commands all change those."""
    post_delete.connect(_session_ended, sender=Session, dispatch_uid="optimizer.session_ended")
    post_save.connect(_account_changed, sender=User, dispatch_uid="optimizer.account_changed")


def _session_ended(instance: Session, **_kwargs: Any) -> None:
    person = str(instance.get_decoded().get(SESSION_KEY, ""))
    if person.isdecimal():
        recheck_access(int(person))


def _account_changed(instance: User, created: bool, **_kwargs: Any) -> None:
    if not created:
        recheck_access(instance.pk)

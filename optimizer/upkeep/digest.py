"""Mail unread notifications: one message per person, and only where an SMTP server is configured.

Notifications are marked as mailed first, so that a server that fails half-way loses a mail and never sends one twice.
"""

from __future__ import annotations

import datetime as dt
import logging

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.template.loader import render_to_string
from django.utils import timezone

from optimizer.models import Notification, User
from optimizer.models.notification import NotificationQuerySet

# How long notifications wait to be read on the site before they are mailed.
PATIENCE = dt.timedelta(minutes=10)
LINES = 50

logger = logging.getLogger(__name__)


def mail_digests() -> int:
    """Send the digests that are due and return how many."""
    if not settings.EMAIL_HOST:
        return 0
    # One query finds everybody concerned; most of the time nobody is.
    people = User.objects.filter(notifications__in=_due()).exclude(email="").distinct()
    return sum(_mail(person) for person in people.filter(is_active=True))


def _due() -> NotificationQuerySet:
    unread = Notification.objects.filter(by_mail=True, mailed_at=None, read_at=None)
    return unread.filter(created_at__lt=timezone.now() - PATIENCE)


def _mail(person: User) -> bool:
    with transaction.atomic():
        # Lock and mark the rows before sending: a second process skips them.
        rows = list(_due().readable_by(person).select_for_update(of=("self",), skip_locked=True).order_by("pk"))
        Notification.objects.filter(pk__in=[row.pk for row in rows]).update(mailed_at=timezone.now())
    if not rows:
        return False
    context = {"person": person, "rows": rows[:LINES], "more": len(rows) - LINES, "site": settings.SITE_ADDRESS}
    subject = rows[0].text if len(rows) == 1 else f"{len(rows)} notifications"
    message = EmailMessage(
        f"[Kernel Scientist] {_one_line(subject)}",
        render_to_string("notifications/digest.txt", context),
        to=[person.email],
    )
    try:
        message.send()
    # Only errors of the server are expected here; anything else is a bug and should reach the log of the task.
    except OSError:  # smtplib's errors are OSErrors
        logger.exception("the digest for person %s could not be sent", person.pk)
        return False
    return True


def _one_line(text: str) -> str:
    return " ".join(text.split())[:120]

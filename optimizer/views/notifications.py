"""Show notifications, and set preferences and followed runs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from optimizer.access import access_run
from optimizer.actions import notification as actions
from optimizer.actions.team import do_set_privacy
from optimizer.models import Notification, NotificationKind, Run
from optimizer.queries.notifications import Wanted, choices_of
from optimizer.views.refusals import attempt
from optimizer.views.signed_in import user_of

PER_PAGE = 50


@login_required
@never_cache
@require_safe
def notifications(request: HttpRequest) -> HttpResponse:
    """List notifications, newest first."""
    rows = Notification.objects.readable_by(user_of(request)).select_related("run", "actor")
    only_unread = request.GET.get("show") == "unread"
    page = Paginator(rows.unread() if only_unread else rows, PER_PAGE).get_page(request.GET.get("page"))
    context = {"page": page, "groups": grouped(page), "only_unread": only_unread}
    return render(request, "notifications/list.html", context)


def grouped(rows: Iterable[Notification]) -> list[tuple[Run | None, list[tuple[Notification, str]]]]:
    """Return the rows with their texts by run, the run with the newest first; what is about no run stands together."""
    groups: dict[int | None, tuple[Run | None, list[tuple[Notification, str]]]] = {}
    for row in rows:
        groups.setdefault(row.run_id, (row.run, []))[1].append((row, _without_run(row)))
    return list(groups.values())


def _without_run(row: Notification) -> str:
    """Return the text without the run's name, which is the heading of its group."""
    name = re.escape(str(row.run))
    text = re.sub(rf"^{name}: | {name}(?= #)| (on|in) {name}(?! #)", "", row.text) if row.run else row.text
    return text[:1].upper() + text[1:] if text[:1].islower() and text != row.text and row.actor is None else text


@login_required
@require_POST
def notifications_read(request: HttpRequest) -> HttpResponse:
    """Mark all as read."""
    actions.do_read(user_of(request))
    return redirect("notifications")


@login_required
@require_POST
def notification_open(request: HttpRequest, notification_id: int) -> HttpResponse:
    """Mark one as read and redirect to its link."""
    user = user_of(request)
    row = get_object_or_404(Notification.objects.readable_by(user), pk=notification_id)
    actions.do_read(user, [row.pk])
    return redirect(row.link)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def notification_settings(request: HttpRequest) -> HttpResponse:
    """Set which notifications the person gets, here and by mail."""
    user = user_of(request)
    if request.method == "POST":
        chosen = {
            kind: Wanted(f"app-{kind.value}" in request.POST, f"mail-{kind.value}" in request.POST)
            for kind in NotificationKind
        }
        actions.do_choose(user, chosen)
        messages.success(request, "Saved.")
        return redirect("notification_settings")
    return render(request, "notifications/settings.html", {"choices": choices_of(user).items()})


@login_required
@require_POST
def run_follow(request: HttpRequest, run_id: int) -> HttpResponse:
    """Follow a run, or stop following it."""
    run = access_run(user_of(request), run_id, "view")
    actions.do_follow(user_of(request), run, request.POST.get("follow") != "off")
    return redirect("run_page", run_id=run.pk)


@login_required
@require_POST
def run_privacy(request: HttpRequest, run_id: int) -> HttpResponse:
    """Hide a run from the team, or show it."""
    user = user_of(request)
    run = access_run(user, run_id, "operate")
    private = request.POST.get("private") == "on"
    said = "This run is now private." if private else "This run is now visible to the team."
    attempt(request, lambda: do_set_privacy(user, run, private), said)
    return redirect("run_page", run_id=run.pk)

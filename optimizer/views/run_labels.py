"""Change tags, notes and archive state of a run from its page."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from optimizer.access import access_run, offers
from optimizer.actions.run_labels import MAX_TAGS, NOTES_CHARS, check_tags, do_archive_runs, do_label_run
from optimizer.models import Run, User
from optimizer.views.signed_in import user_of


def labels_context(run: Run, user: User) -> dict[str, Any]:
    """Return what the page needs to edit tags and notes."""
    return {"may_operate": offers(user, run, "operate"), "most_tags": MAX_TAGS, "notes_chars": NOTES_CHARS}


@login_required
@require_POST
def run_labels(request: HttpRequest, run_id: int) -> HttpResponse:
    """Replace the run's tags and notes."""
    run = access_run(user_of(request), run_id, "operate")
    try:
        do_label_run(run, check_tags(request.POST.get("tags", "")), request.POST.get("notes", ""))
    except ValidationError as refusal:
        messages.error(request, " ".join(refusal.messages))
    return redirect("run_page", run_id=run.pk)


@login_required
@require_POST
def run_archive(request: HttpRequest, run_id: int) -> HttpResponse:
    """Archive the run (`archived=1`), or unarchive it."""
    run = access_run(user_of(request), run_id, "operate")
    archived = request.POST.get("archived") == "1"
    do_archive_runs([run], archived=archived)
    messages.success(request, "Run archived." if archived else "Run restored.")
    return redirect("run_page", run_id=run.pk)

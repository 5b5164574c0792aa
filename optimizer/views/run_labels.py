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
from optimizer.models import Run
from optimizer.views.signed_in import user_of


def labels_context(request: HttpRequest, run: Run) -> dict[str, Any]:
    """Return what the page needs to edit tags and notes. Input that was refused is shown once more."""
    typed = request.session.pop(_typed_key(run), None) or {"tags": ", ".join(run.tags), "notes": run.notes}
    may_operate = offers(user_of(request), run, "operate")
    return {"labels": typed, "may_operate": may_operate, "most_tags": MAX_TAGS, "notes_chars": NOTES_CHARS}


@login_required
@require_POST
def run_labels(request: HttpRequest, run_id: int) -> HttpResponse:
    """Replace the run's tags and notes."""
    run = access_run(user_of(request), run_id, "operate")
    tags, notes = request.POST.get("tags", ""), request.POST.get("notes", "")
    try:
        do_label_run(run, check_tags(tags), notes)
    except ValidationError as refusal:
        messages.error(request, " ".join(refusal.messages))
        request.session[_typed_key(run)] = {"tags": tags[:NOTES_CHARS], "notes": notes[: 2 * NOTES_CHARS]}
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


def _typed_key(run: Run) -> str:
    return f"labels of run {run.pk}"

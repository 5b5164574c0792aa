"""Edit a kernel in the browser: change lines, preview the difference, submit it as a candidate."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.db.models import Max
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods, require_POST

from optimizer.access import access_kernel, access_run
from optimizer.actions.suggestion import Moved, Suggestion, base_moved, check_suggest, do_suggest, suggestion_in
from optimizer.diffs.folding import Gap, visible_rows
from optimizer.diffs.rows import compare
from optimizer.forms.suggestion import SuggestionForm
from optimizer.models import Comment, Kernel, User
from optimizer.views.diff_markup import Painter
from optimizer.views.signed_in import user_of


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def suggest(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """Show the editor; on POST the preview or, with `submit`, create a kernel."""
    user = user_of(request)
    base = access_kernel(user, run_id, number, "comment")
    form = SuggestionForm(request.POST if request.method == "POST" else None, initial=_initial(base))
    context: dict[str, Any] = {"run": base.run, "kernel": base, "form": form, "line": request.GET.get("line", "")}
    if request.method == "POST" and form.is_valid():
        try:
            wanted = check_suggest(user, base.run, _suggestion(base, form))
            moved = base_moved(base, wanted.text, form.cleaned_data["seen"])
            # A person should not overwrite a newer kernel without having seen that it exists.
            if "submit" in request.POST and (moved is None or "anyway" in request.POST):
                return _submitted(request, user, wanted)
            context |= _preview(wanted, moved)
        except ValidationError as refusal:
            form.add_error(None, refusal)
    return render(request, "review/suggest.html", context, status=422 if form.errors else 200)


@login_required
@require_POST
def comment_measure(request: HttpRequest, run_id: int, comment_id: int) -> HttpResponse:
    """Make a kernel of the lines that a comment suggests, with the person as its author, and queue it."""
    user = user_of(request)
    run = access_run(user, run_id, "comment")
    comments = Comment.objects.visible_to(user).select_related("thread__kernel", "author")
    comment = get_object_or_404(comments, pk=comment_id, thread__run=run)
    try:
        return _submitted(request, user, check_suggest(user, run, suggestion_in(comment)))
    except ValidationError as refusal:
        messages.error(request, " ".join(refusal.messages))
        return redirect("thread_page", run_id=run_id, thread_id=comment.thread_id)


def _initial(base: Kernel) -> dict[str, Any]:
    return {"text": base.source, "seen": base.run.kernels.aggregate(last=Max("number"))["last"]}


def _suggestion(base: Kernel, form: SuggestionForm) -> Suggestion:
    return Suggestion(base, form.cleaned_data["text"], form.cleaned_data["title"], form.cleaned_data["why"])


def _submitted(request: HttpRequest, user: User, wanted: Suggestion) -> HttpResponse:
    kernel = do_suggest(user, wanted)
    messages.success(request, f"Queued your edit as kernel #{kernel.number}.")
    return redirect("kernel_page", run_id=kernel.run_id, number=kernel.number)


def _gap(gap: Gap) -> str:
    return format_html('<div class="gap-line"><span>{} unchanged lines</span></div>', gap.size)


def _preview(wanted: Suggestion, moved: Moved | None) -> dict[str, Any]:
    diff = compare(wanted.base.source, wanted.text)
    shown = visible_rows(len(diff.rows), diff.changed, ())
    painter = Painter(diff, wanted.base.language, "unified", _gap)
    rows = painter.rows(0, len(diff.rows), shown)
    return {"rows": rows, "diff": diff, "moved": moved, "has_preview": True}

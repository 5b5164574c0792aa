"""Post threads, replies and verdicts, and change them, through plain forms that return to the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from optimizer.access import access_comment, access_kernel, access_run, access_thread, offers
from optimizer.actions.review import MAX_COMMENT, Place, do_begin_thread, do_publish_review, do_reply, do_say
from optimizer.actions.thread import do_change_thread, do_delete_draft, do_edit_comment
from optimizer.forms.review import EditForm, PublishForm, StateForm, ThreadForm, WordsForm, place_of
from optimizer.models import Comment, Hypothesis, Kernel, ReviewVerdict, Run, Side, Thread, ThreadState, User
from optimizer.queries.notifications import mentionable_names
from optimizer.text.whole_numbers import COUNT_DIGITS, parse_whole_number
from optimizer.views.diff_threads import drafts_beside, views_of
from optimizer.views.safe_html import markdown
from optimizer.views.signed_in import user_of

SHOWN_THREADS = 200


@login_required
@require_safe
def discussion(request: HttpRequest, run_id: int) -> HttpResponse:
    """Show all threads of a run, open ones first, with a form for the run itself."""
    user = user_of(request)
    run = access_run(user, run_id, "view")
    show = request.GET.get("show", "open")
    threads = Thread.objects.visible_to(user).filter(run=run).only("pk", "state")
    shown = threads if show == "all" else threads.filter(state=ThreadState.OPEN)
    context = {
        "run": run,
        "show": show,
        "views": views_of(user, list(shown.order_by("-pk")[:SHOWN_THREADS]), request),
        "open_count": threads.filter(state=ThreadState.OPEN).count(),
        "total": threads.count(),
        "here": request.get_full_path(),
        "reviews": run.reviews.published().select_related("author", "kernel").order_by("-published_at")[:20],
        **_run_forms(user, run, request),
    }
    return render(request, "review/discussion.html", context)


@login_required
@require_safe
def thread_page(request: HttpRequest, run_id: int, thread_id: int) -> HttpResponse:
    """Redirect to the place where the thread was started, to `?comment=` where one is named."""
    thread = access_thread(user_of(request), run_id, thread_id, "view")
    comment = parse_whole_number(request.GET.get("comment"))
    place = f"thread-{thread.pk}" if comment is None else f"comment-{comment}"
    if thread.kernel is None:
        return redirect(f"{reverse('discussion', args=[run_id])}?show=all#{place}")
    # The page opens the row of the line even if it is folded away.
    line = f"&line=n{thread.last_line}" if thread.last_line else ""
    address = reverse("diff_page", args=[run_id, thread.kernel.number])
    return redirect(f"{address}?against=parent{line}#{place}")


@login_required
@require_POST
def thread_new(request: HttpRequest, run_id: int) -> HttpResponse:
    """Start a thread on the run, a hypothesis, a kernel or its lines."""
    user = user_of(request)
    run = access_run(user, run_id, "comment")
    form = ThreadForm(request.POST)
    if not form.is_valid():
        return _again(request, run, form)
    about = _kernel(user, run, form.cleaned_data["kernel"])
    place = _place(user, run, about, form)

    def say() -> Comment:
        if form.cleaned_data["now"]:
            return do_say(user, place, form.words)
        return do_begin_thread(user, place, form.words, about)

    return _done(request, run, form, say)


@login_required
@require_POST
def comment_preview(request: HttpRequest, run_id: int) -> HttpResponse:
    """Return a comment's text as it would be shown."""
    run = access_run(user_of(request), run_id, "comment")
    return HttpResponse(markdown(request.POST.get("body", "")[:MAX_COMMENT], mentionable_names(run.team)))


@login_required
@require_POST
def thread_reply(request: HttpRequest, run_id: int, thread_id: int) -> HttpResponse:
    """Reply in a thread, as a draft or published at once."""
    user = user_of(request)
    thread = access_thread(user, run_id, thread_id, "comment")
    form = WordsForm(request.POST)
    if not form.is_valid():
        return _again(request, thread.run, form)
    return _done(
        request,
        thread.run,
        form,
        lambda: (
            do_say(user, thread, form.words) if form.cleaned_data["now"] else do_reply(user, thread, form.words)
        ),
    )


@login_required
@require_POST
def thread_state(request: HttpRequest, run_id: int, thread_id: int) -> HttpResponse:
    """Resolve, drop or reopen a thread."""
    thread = access_thread(user_of(request), run_id, thread_id, "comment")
    form = StateForm(request.POST)
    if not form.is_valid():
        raise Http404
    try:
        do_change_thread(user_of(request), thread, ThreadState(form.cleaned_data["state"]))
    except ValidationError as refusal:  # somebody was faster
        messages.warning(request, " ".join(refusal.messages))
    return _back(request, thread.run, f"#thread-{thread.pk}")


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def comment_edit(request: HttpRequest, run_id: int, comment_id: int) -> HttpResponse:
    """Change the text of one's own comment."""
    comment = access_comment(user_of(request), run_id, comment_id)
    form = EditForm(request.POST if request.method == "POST" else None, initial={"body": comment.body})
    if request.method == "POST" and form.is_valid():
        return _done(
            request,
            comment.thread.run,
            form,
            lambda: do_edit_comment(user_of(request), comment, form.cleaned_data["body"]),
        )
    return _again(request, comment.thread.run, form, status=200)


@login_required
@require_POST
def comment_delete(request: HttpRequest, run_id: int, comment_id: int) -> HttpResponse:
    """Delete a draft."""
    comment = access_comment(user_of(request), run_id, comment_id)
    try:
        do_delete_draft(user_of(request), comment)
    except ValidationError as refusal:
        messages.warning(request, " ".join(refusal.messages))
    return _back(request, comment.thread.run, "")


@login_required
@require_POST
def review_publish(request: HttpRequest, run_id: int) -> HttpResponse:
    """Publish the visible drafts with a verdict.

    They are those beside a kernel (`?kernel=`) and the one it is compared with (`?old=`, as `run.number`), or without
    a kernel those in the run's discussion.
    """
    user = user_of(request)
    run = access_run(user, run_id, "comment")
    kernel = _kernel(user, run, parse_whole_number(request.GET.get("kernel"), COUNT_DIGITS))
    form = PublishForm(request.POST)
    if not form.is_valid():
        return _again(request, run, form)
    verdict, summary = ReviewVerdict(form.cleaned_data["verdict"]), form.cleaned_data["summary"]
    seen = list(_drafts_seen(user, run, kernel, request.GET.get("old", "")))
    return _done(request, run, form, lambda: do_publish_review(user, run, kernel, verdict, summary, seen))


def _drafts_seen(user: User, run: Run, kernel: Kernel | None, beside: str) -> QuerySet[Comment]:
    if kernel is None:
        return Comment.objects.drafts_of(user).filter(thread__run=run).select_related("thread__run")
    place = place_of(beside)
    return drafts_beside(user, access_kernel(user, *place, "view") if place else None, kernel)


def _run_forms(user: User, run: Run, request: HttpRequest) -> dict[str, Any]:
    hypothesis = _hypothesis(run, parse_whole_number(request.GET.get("hypothesis")))
    return {
        "may_comment": offers(user, run, "comment"),
        "people": sorted(run.team.members.filter(is_active=True).values_list("username", flat=True)),
        "hypothesis": hypothesis,
        "thread_form": ThreadForm(initial={"hypothesis": hypothesis.pk if hypothesis else ""}, auto_id="say-%s"),
        "publish_form": PublishForm(auto_id="publish-%s"),
        "drafts": _drafts_seen(user, run, None, "").count(),
    }


def _place(user: User, run: Run, about: Kernel | None, form: ThreadForm) -> Place:
    """Return what the thread is about. On the old side of a diff that is the old kernel, perhaps of another run."""
    first, last = form.cleaned_data["first"], form.cleaned_data["last"]
    side, old = form.cleaned_data["side"], form.old_place()
    other = access_kernel(user, *old, "view") if old else None
    if side == Side.OLD and old and about:
        kernel = access_kernel(user, *old, "comment")
        return Place(kernel.run, kernel, None, first, last, side, about)
    return Place(run, about, _hypothesis(run, form.cleaned_data["hypothesis"]), first, last, side, other)


def _kernel(user: User, run: Run, number: int | None) -> Kernel | None:
    return None if number is None else access_kernel(user, run.pk, number, "comment")


def _hypothesis(run: Run, pk: int | None) -> Hypothesis | None:
    return None if pk is None else get_object_or_404(Hypothesis, pk=pk, run=run)


def _done(request: HttpRequest, run: Run, form: forms.Form, act: Callable[[], Any]) -> HttpResponse:
    """Run the action and return to the page, or show the form again with the errors, so that no text is lost."""
    try:
        result = act()
    except ValidationError as refusal:
        form.add_error(None, refusal)
        return _again(request, run, form)
    except Run.DoesNotExist:  # deleted between two moments
        raise Http404("There is no such run.") from None
    return _back(request, run, f"#thread-{result.thread_id}" if isinstance(result, Comment) else "#review")


def _again(request: HttpRequest, run: Run, form: forms.Form, status: int = 422) -> HttpResponse:
    context = {"run": run, "form": form, "here": _here(request, run), "action": request.get_full_path()}
    return render(request, "review/again.html", context, status=status)


def _back(request: HttpRequest, run: Run, fragment: str) -> HttpResponse:
    return redirect(_here(request, run).partition("#")[0] + fragment)


def _here(request: HttpRequest, run: Run) -> str:
    """Return the address from which the person came, never one of another site."""
    here = request.POST.get("here") or request.GET.get("here") or ""
    # Only paths of this site: the value comes from the request.
    if url_has_allowed_host_and_scheme(here, allowed_hosts=None) and here.startswith("/"):
        return here
    return reverse("discussion", args=[run.pk])

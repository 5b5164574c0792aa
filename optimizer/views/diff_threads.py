"""Place threads beside the code: which belong to a page, under which line, and how they are shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from django.db.models import Prefetch, Q, QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from optimizer.access import may
from optimizer.diffs.porting import Fit, Position
from optimizer.diffs.positions import ancestors, first_parents, position_in
from optimizer.diffs.rows import TextDiff
from optimizer.forms.review import PublishForm, ThreadForm
from optimizer.models import Comment, Guidance, Kernel, Review, ReviewVerdict, Thread, ThreadState, User
from optimizer.queries.notifications import mentionable_names
from optimizer.text.markdown import suggested_lines
from optimizer.views.safe_html import markdown

__all__ = ["Placed", "ThreadView", "first_parents", "forms", "placed", "views_about", "views_of"]


@dataclass(frozen=True)
class CommentView:
    """Hold one comment as it is shown."""

    comment: Comment
    html: SafeString
    is_mine: bool
    guidance: Guidance | None
    # A published approval that was given before the comment was edited.
    edited_after: Review | None

    @property
    def suggests(self) -> bool:
        """Return True for a published comment on lines with a block that says what should stand there."""
        on_lines = self.comment.thread.first_line is not None
        return on_lines and not self.comment.is_draft and suggested_lines(self.comment.body) is not None


@dataclass(frozen=True)
class ThreadView:
    """Hold one thread as one person sees it. `position` is its place on this page, or None on pages without lines."""

    thread: Thread
    comments: Sequence[CommentView]
    may_comment: bool
    position: Position | None = None
    here: bool = True

    @property
    def is_draft(self) -> bool:
        """Return True while nobody else can see the thread."""
        return all(view.comment.is_draft for view in self.comments)

    @property
    def moves(self) -> list[tuple[str, str]]:
        """Return the states that it can enter from here, with the labels of the buttons."""
        words = {ThreadState.OPEN: "Reopen", ThreadState.RESOLVED: "Resolve", ThreadState.DROPPED: "Drop"}
        if self.thread.state_choice.is_terminal:
            return [(ThreadState.OPEN, words[ThreadState.OPEN])]
        return [(state, words[state]) for state in (ThreadState.RESOLVED, ThreadState.DROPPED)]

    @property
    def fit(self) -> str:
        """Return in words how well a ported thread fits, or an empty text where it was started here."""
        if self.here or self.position is None:
            return ""
        return {
            Fit.EXACT: "the same lines",
            Fit.CHANGED: "its lines have changed since",
            Fit.WHOLE_FILE: "its lines are gone",
        }[self.position.fit]


@dataclass(frozen=True)
class Placed:
    """Hold the threads of a diff: under lines by (side, line from 1), and those that are about no line of it."""

    below: dict[tuple[str, int], str] = field(default_factory=dict)
    general: list[ThreadView] = field(default_factory=list)
    total: int = 0
    open: int = 0


def placed(user: User, old: Kernel | None, new: Kernel, diff: TextDiff, request: HttpRequest) -> Placed:
    """Place the threads about the two kernels, and the open threads about their ancestors.

    A thread appears once: at its lines in the new kernel, else at those in the old one, else above the code.
    """
    result, standing = Placed(), list(_threads(user, old, new))
    under: dict[tuple[str, int], list[ThreadView]] = {}
    for view in views_of(user, [thread for thread, _ in standing], request):
        place, shown = _place(view, old, new, diff)
        if place is None:
            result.general.append(shown)
        else:
            under.setdefault(place, []).append(shown)
    result.below.update({place: _markup(views, request) for place, views in under.items()})
    open_count = sum(thread.state == ThreadState.OPEN for thread, _ in standing)
    return Placed(result.below, result.general, len(standing), open_count)


def views_of(user: User, threads: Sequence[Thread], request: HttpRequest) -> list[ThreadView]:
    """Return threads with the comments that the person may see, in few queries whatever their number."""
    if not threads:
        return []
    comments = Comment.objects.visible_to(user).select_related("author", "review", "guidance__withdrawn_by")
    rows = Thread.objects.filter(pk__in=[thread.pk for thread in threads]).select_related(
        "run__team", "kernel", "hypothesis", "state_by"
    )
    rows = rows.defer("kernel__source", "kernel__report", "kernel__meta")
    rows = rows.prefetch_related(Prefetch("comments", comments.prefetch_related("edits__editor")))
    approvals = list(_approvals(threads))
    teams: dict[int, tuple[frozenset[str], bool]] = {}
    views = []
    for row in rows:
        # Threads of one page may belong to runs of several teams, but usually to one.
        if row.run.team_id not in teams:
            teams[row.run.team_id] = mentionable_names(row.run.team), may(user, row.run, "comment")
        people, may_comment = teams[row.run.team_id]
        shown = [_comment_view(user, comment, row, people, approvals) for comment in row.comments.all()]
        views.append(ThreadView(row, shown, may_comment))
    return views


def views_about(user: User, kernel: Kernel, request: HttpRequest) -> list[ThreadView]:
    """Return the threads that were started on a kernel, open ones first."""
    threads = Thread.objects.visible_to(user).filter(kernel=kernel).only("pk", "state").order_by("pk")
    views = views_of(user, list(threads), request)
    return sorted(views, key=lambda view: view.thread.state_choice.is_terminal)


def drafts_beside(user: User, old: Kernel | None, new: Kernel) -> QuerySet[Comment]:
    """Return the drafts that the person sees on the page of these two: on either side, ported here, or about `new`."""
    shown = [thread.pk for thread, _ in _threads(user, old, new)]
    drafts = Comment.objects.drafts_of(user).filter(Q(thread__in=shown) | Q(review__kernel=new))
    return drafts.select_related("thread__run")


def forms(user: User, new: Kernel, old: Kernel | None, here: str) -> dict[str, Any]:
    """Return the forms with which the person can comment; `here` is the address to return to."""
    if not may(user, new.run, "comment"):
        return {"may_comment": False}
    beside = f"{old.run_id}.{old.number}" if old else ""
    initial = {"kernel": new.number, "old": beside}
    return {
        "may_comment": True,
        "people": sorted(new.run.team.members.filter(is_active=True).values_list("username", flat=True)),
        "here": here,
        "thread_form": ThreadForm(initial=initial, auto_id="say-%s"),
        "publish_form": PublishForm(auto_id="publish-%s"),
        "publish_about": urlencode({"kernel": new.number, "old": beside}),
        "drafts": drafts_beside(user, old, new).count(),
        "verdicts": verdicts_on(new),
    }


def verdicts_on(kernel: Kernel) -> list[Review]:
    """Return each person's newest verdict on a kernel, newest last; plain comments are no verdicts."""
    said = Review.objects.published().filter(kernel=kernel).exclude(verdict=ReviewVerdict.COMMENT)
    newest = {review.author_id: review for review in said.select_related("author").order_by("published_at")}
    return sorted(newest.values(), key=lambda review: review.pk)


def _threads(user: User, old: Kernel | None, new: Kernel) -> Iterable[tuple[Thread, bool]]:
    """Return pairs of (thread, whether it was started on one of the two kernels)."""
    own = {kernel.pk for kernel in (old, new) if kernel is not None}
    came_from = ancestors(new) - own
    about = Q(kernel__in=own) | Q(kernel__in=came_from, state=ThreadState.OPEN)
    found = Thread.objects.visible_to(user).filter(about).only("pk", "kernel_id", "state")
    return ((thread, thread.kernel_id in own) for thread in found)


def _place(
    view: ThreadView, old: Kernel | None, new: Kernel, diff: TextDiff
) -> tuple[tuple[str, int] | None, ThreadView]:
    thread = view.thread
    if thread.first_line is None:
        return None, _shown(view, None, thread.kernel_id == new.pk)
    # Resolved and dropped threads stay where they were started.
    follows = thread.kernel_id == new.pk or thread.state == ThreadState.OPEN
    ported = position_in(thread, new) if follows else None
    if ported is not None and ported.count and ported.first + ported.count - 1 <= len(diff.new.lines):
        return ("new", ported.first + ported.count - 1), _shown(view, ported, thread.kernel_id == new.pk)
    if old is not None and thread.kernel_id == old.pk and thread.last_line is not None:
        exact = Position(thread.first_line, thread.line_count or 1)
        return ("old", thread.last_line), _shown(view, exact, here=True)
    return None, _shown(view, ported, here=False)


def _shown(view: ThreadView, position: Position | None, here: bool) -> ThreadView:
    return ThreadView(view.thread, view.comments, view.may_comment, position, here)


def _markup(views: Sequence[ThreadView], request: HttpRequest) -> str:
    context = {"views": views, "here": request.get_full_path()}
    return render_to_string("review/_threads.html", context, request=request)


def _comment_view(
    user: User, comment: Comment, thread: Thread, people: Collection[str], approvals: Sequence[Review]
) -> CommentView:
    guidance: Guidance | None = getattr(comment, "guidance", None)
    return CommentView(
        comment,
        markdown(comment.body, people),
        comment.author_id == user.pk,
        guidance,
        _approved_before_edit(comment, thread, approvals),
    )


def _approvals(threads: Sequence[Thread]) -> Iterable[Review]:
    kernels = {thread.kernel_id for thread in threads if thread.kernel_id}
    given = Review.objects.published().filter(kernel__in=kernels, verdict=ReviewVerdict.APPROVE)
    return given.select_related("author")


def _approved_before_edit(comment: Comment, thread: Thread, approvals: Sequence[Review]) -> Review | None:
    """Return the approval that was given after the comment was published and before it was edited, or None."""
    if comment.edited_at is None or comment.review.published_at is None:
        return None
    for review in approvals:
        given = review.published_at
        if (
            review.kernel_id == thread.kernel_id
            and given
            and comment.review.published_at <= given < comment.edited_at
        ):
            return review
    return None

"""Serve what people say in a run: threads with comments, and reviews. Drafts are visible to their author alone."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Field, Query, Router, Schema, Status

from optimizer.access import access_kernel, access_run, access_thread
from optimizer.actions.review import Place, Words, do_begin_thread, do_publish_review, do_reply, do_say
from optimizer.actions.thread import do_change_thread
from optimizer.api.auth import caller, needs
from optimizer.api.body import Body
from optimizer.api.errors import Refusal
from optimizer.api.paging import Page, Window, page_of
from optimizer.models import (
    Comment,
    Hypothesis,
    Kernel,
    Review,
    ReviewVerdict,
    Run,
    Thread,
    ThreadState,
    TokenScope,
)

router = Router(tags=["discussion"], auth=needs(TokenScope.READ))
WRITE = needs(TokenScope.REVIEW)
BIG = 2**63


class CommentIn(Body):
    """Describe a comment in Markdown.

    `guidance` also gives it to the agents: of the whole `run`, or of the kernel's `lineage`. Only its author sees a
    `draft` until a review publishes it.
    """

    body: str = Field(min_length=1, max_length=20_000)
    guidance: Literal["", "run", "lineage"] = ""
    draft: bool = False

    @property
    def words(self) -> Words:
        """Return the comment as the actions take it."""
        return Words(self.body, bool(self.guidance), self.guidance == "lineage")


class ThreadIn(CommentIn):
    """Describe a comment that starts a thread: on the run, a hypothesis, a kernel, or its lines `first` to `last`."""

    kernel: int | None = Field(default=None, ge=0, lt=2**31)
    hypothesis: int | None = Field(default=None, ge=0, lt=BIG)
    first: int | None = Field(default=None, ge=1, lt=2**31)
    last: int | None = Field(default=None, ge=1, lt=2**31)


class StateIn(Body):
    """Resolve, drop or reopen a thread."""

    state: ThreadState


class ReviewIn(Body):
    """Publish the caller's drafts on a kernel (or, without one, on the run), with a verdict."""

    kernel: int | None = Field(default=None, ge=0, lt=2**31)
    verdict: ReviewVerdict = ReviewVerdict.COMMENT
    summary: str = Field(default="", max_length=20_000)


class CommentOut(Schema):
    """Describe a comment."""

    id: int
    author: str | None
    body: str
    is_draft: bool
    is_guidance: bool
    created_at: dt.datetime
    edited_at: dt.datetime | None

    @staticmethod
    def resolve_author(row: Comment) -> str | None:
        """Return the account name, or null where the account is gone."""
        return row.author.get_username() if row.author else None


class ThreadOut(Schema):
    """Describe a thread, with the comments that the caller may read.

    `first_line` counts from 1 in the kernel's own source.
    """

    id: int
    state: str
    subject: str
    kernel: int | None
    hypothesis: int | None
    first_line: int | None
    line_count: int | None
    text: str
    created_at: dt.datetime
    comments: list[CommentOut]


class ReviewOut(Schema):
    """Describe a published review."""

    id: int
    kernel: int | None
    author: str | None
    verdict: str
    summary: str
    comments: int
    published_at: dt.datetime


@router.get("/{int:run_id}/threads", response=Page[ThreadOut])
def list_threads(
    request: HttpRequest,
    run_id: int,
    window: Query[Window],
    state: ThreadState | None = None,
    kernel: int | None = None,
) -> Any:
    """List threads, oldest first, optionally in one `state` or on one `kernel`."""
    run = access_run(caller(request), run_id, "view")
    rows = Thread.objects.visible_to(caller(request)).filter(run=run).select_related("kernel", "hypothesis")
    rows = rows.filter(state=state) if state else rows
    # PostgreSQL would refuse a number outside the range of its integers.
    rows = rows.filter(kernel__number=kernel) if kernel is not None and 0 <= kernel < 2**31 else rows
    page = page_of(rows.order_by("pk"), window, "pk")
    return {"items": [_thread_out(request, row) for row in page["items"]], "next": page["next"]}


@router.post("/{int:run_id}/threads", response={201: ThreadOut, 422: Refusal}, auth=WRITE)
def begin_thread(request: HttpRequest, run_id: int, body: ThreadIn) -> Any:
    """Start a thread."""
    user, run = caller(request), access_run(caller(request), run_id, "comment")
    hypothesis = get_object_or_404(Hypothesis, pk=body.hypothesis, run=run) if body.hypothesis is not None else None
    place = Place(run, _kernel(request, run, body.kernel), hypothesis, body.first, body.last)
    comment = do_begin_thread(user, place, body.words) if body.draft else do_say(user, place, body.words)
    return Status(201, _thread_out(request, comment.thread))


@router.get("/{int:run_id}/threads/{int:thread_id}", response=ThreadOut)
def read_thread(request: HttpRequest, run_id: int, thread_id: int) -> Any:
    """Return one thread."""
    return _thread_out(request, access_thread(caller(request), run_id, thread_id, "view"))


@router.post("/{int:run_id}/threads/{int:thread_id}/comments", response={201: ThreadOut, 422: Refusal}, auth=WRITE)
def reply(request: HttpRequest, run_id: int, thread_id: int, body: CommentIn) -> Any:
    """Reply in a thread."""
    thread = access_thread(caller(request), run_id, thread_id, "comment")
    say = do_reply if body.draft else do_say
    say(caller(request), thread, body.words)
    return Status(201, _thread_out(request, thread))


@router.put("/{int:run_id}/threads/{int:thread_id}/state", response={200: ThreadOut, 422: Refusal}, auth=WRITE)
def change_thread(request: HttpRequest, run_id: int, thread_id: int, body: StateIn) -> Any:
    """Resolve, drop or reopen a thread. Answers 422 where somebody else did it first."""
    thread = access_thread(caller(request), run_id, thread_id, "comment")
    do_change_thread(caller(request), thread, body.state)
    return _thread_out(request, access_thread(caller(request), run_id, thread_id, "comment"))


@router.get("/{int:run_id}/reviews", response=Page[ReviewOut])
def list_reviews(request: HttpRequest, run_id: int, window: Query[Window]) -> Any:
    """List published reviews, oldest first."""
    run = access_run(caller(request), run_id, "view")
    rows = run.reviews.published().select_related("author", "kernel").prefetch_related("comments").order_by("pk")
    page = page_of(rows, window, "pk")
    return {"items": [_review_out(row) for row in page["items"]], "next": page["next"]}


@router.post("/{int:run_id}/reviews", response={201: ReviewOut, 422: Refusal}, auth=WRITE)
def publish_review(request: HttpRequest, run_id: int, body: ReviewIn) -> Any:
    """Publish one's drafts with a verdict."""
    user, run = caller(request), access_run(caller(request), run_id, "comment")
    review = do_publish_review(user, run, _kernel(request, run, body.kernel), body.verdict, body.summary)
    return Status(201, _review_out(review))


def _kernel(request: HttpRequest, run: Run, number: int | None) -> Kernel | None:
    return None if number is None else access_kernel(caller(request), run.pk, number, "comment")


def _thread_out(request: HttpRequest, row: Thread) -> dict[str, Any]:
    plain = ("state", "subject", "first_line", "line_count", "text", "created_at")
    # Drafts of others must not leave the server, not even as a count.
    said = row.comments.visible_to(caller(request)).select_related("author", "review")
    return {name: getattr(row, name) for name in plain} | {
        "id": row.pk,
        "kernel": row.kernel.number if row.kernel else None,
        "hypothesis": row.hypothesis_id,
        "comments": list(said),
    }


def _review_out(row: Review) -> dict[str, Any]:
    return {
        "id": row.pk,
        "kernel": row.kernel.number if row.kernel else None,
        "author": row.author.get_username() if row.author else None,
        "verdict": row.verdict,
        "summary": row.summary,
        "comments": len(row.comments.all()),
        "published_at": row.published_at,
    }

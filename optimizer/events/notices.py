"""Derive notifications from the events of a run.

A failure here is logged and does not fail the run: a notification may be missed, a measurement may not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.db import transaction
from django.urls import reverse

from optimizer.events.notify import NewNotification, do_notify
from optimizer.events.payloads import (
    BestChanged,
    BestRefuted,
    BudgetWarned,
    EvaluationFinished,
    ReviewPublished,
    RunNoted,
    RunStateChanged,
)
from optimizer.models import (
    AuthorKind,
    Comment,
    EvaluationStatus,
    Kernel,
    NotificationKind,
    Review,
    ReviewVerdict,
    Run,
    RunEvent,
    RunState,
    User,
)
from optimizer.queries.notifications import followers_of
from optimizer.text.mentions import mentioned_names

WARN_AT_PERCENT = 80

logger = logging.getLogger(__name__)


def notify_people(event: RunEvent) -> None:
    """Notify the people whom an event concerns, if it concerns any."""
    act = _ACTS.get(event.type)
    if act is None:
        return
    try:
        # A savepoint: after an SQL error PostgreSQL refuses every later statement of the surrounding transaction.
        with transaction.atomic():
            act(event)
    except Exception:
        logger.exception("notifications for event %s of run %s failed", event.seq, event.run_id)


def _best(event: RunEvent) -> None:
    payload = event.payload
    if not payload["announce"]:
        return
    leader = Kernel.objects.select_related("run").filter(pk=payload["kernel"], run=event.run_id).first()
    if leader is None:
        return
    times = f" at {payload['speedup']:.2f}×" if payload.get("speedup") else ""
    text = f"{event.run}: kernel #{leader.number} leads{times}"
    _tell_followers(event, NotificationKind.BEST, text, f"best-{leader.pk}", _kernel_page(leader))


def _refuted(event: RunEvent) -> None:
    """Tell the followers when a leader steps down; a contender that never led is in the feed alone."""
    payload = event.payload
    kernel = Kernel.objects.filter(pk=payload["kernel"], run=event.run_id).first()
    if kernel is not None and payload.get("led", True):
        text = f"{event.run}: kernel #{kernel.number} no longer leads. {payload['reason']}"
        _tell_followers(event, NotificationKind.BEST, text, f"refuted-{event.seq}", _kernel_page(kernel))


def _state(event: RunEvent) -> None:
    state = RunState(event.payload["state"])
    if state.is_terminal:
        reason = event.payload.get("reason") or ""
        text = f"{event.run}: {state.label.lower()}{'. ' + reason if reason else ''}"
        _tell_followers(event, NotificationKind.ENDED, text, f"state-{event.seq}")


def _noted(event: RunEvent) -> None:
    if event.payload.get("tone") in {"warn", "bad"}:
        _tell_followers(event, NotificationKind.STUCK, f"{event.run}: {event.payload['text']}", f"note-{event.seq}")


def _budget(event: RunEvent) -> None:
    if event.payload["percent"] >= WARN_AT_PERCENT:
        kind = event.payload["kind"]
        text = f"{event.run}: {event.payload['percent']} % of the budget ({kind.replace('_', ' ')}) used"
        _tell_followers(event, NotificationKind.BUDGET, text, f"budget-{event.seq}")


def _reviewed(event: RunEvent) -> None:
    found = Review.objects.select_related("author", "kernel__author", "kernel__run__team", "run__team")
    review = found.get(pk=event.payload["review"])
    threads = event.payload.get("threads", [])
    comments = list(
        Comment.objects.filter(review=review, thread__in=threads).select_related("thread").order_by("pk")
    )
    # A person who is mentioned, replied to and reviewed gets one notification, for the strongest reason.
    told: set[int] = set()
    for kind, person, text, about in _listeners(review, comments):
        if person.pk not in told:
            told.add(person.pk)
            link, key = _place_of(review, about), f"review-{review.pk}"
            do_notify([person], NewNotification(kind, key, text, link, review.run, review.author))


def _listeners(review: Review, comments: list[Comment]) -> list[tuple[NotificationKind, User, str, Comment | None]]:
    """Return who is notified of a published review, in order of precedence, and the comment that concerns them."""
    where = f"{review.run} #{review.kernel.number}" if review.kernel else str(review.run)
    author = [review.kernel.author] if review.kernel and review.kernel.author else []
    verdict = review.verdict_choice.label.lower() if review.verdict != ReviewVerdict.COMMENT else "comments"
    first = comments[0] if comments else None
    return [
        *((NotificationKind.MENTION, person, f"{review.author} mentioned you on {where}", comment)
          for person, comment in _mentioned(review, comments)),
        *((NotificationKind.REPLY, person, f"{review.author} replied on {where}", comment)
          for person, comment in _answered(comments)),
        *((NotificationKind.REVIEW, person, f"{review.author} reviewed your kernel {where}: {verdict}", first)
          for person in author),
    ]  # fmt: skip


def _mentioned(review: Review, comments: list[Comment]) -> list[tuple[User, Comment | None]]:
    """Return the members who are named, each with the first comment that names them; None for the summary."""
    words: list[tuple[Comment | None, str]] = [(comment, comment.body) for comment in comments]
    words.append((None, review.summary))
    found: dict[User, Comment | None] = {}
    members = {person.username.casefold(): person for person in User.objects.filter(teams=review.run.team_id)}
    for comment, text in words:
        for name in mentioned_names(text) & members.keys():
            found.setdefault(members[name], comment)
    return list(found.items())


def _answered(comments: list[Comment]) -> list[tuple[User, Comment | None]]:
    """Return those who wrote in the threads before, each with the first new comment there."""
    found: dict[User, Comment | None] = {}
    for comment in comments:
        earlier = User.objects.filter(
            comments__thread=comment.thread_id, comments__review__published_at__isnull=False
        )
        for person in earlier.distinct():
            found.setdefault(person, comment)
    return list(found.items())


def _measured(event: RunEvent) -> None:
    """Tell the author of a suggested edit what came of its first evaluation."""
    payload = event.payload
    if not payload["first"]:
        return
    kernel = Kernel.objects.filter(
        run=event.run_id, number=payload["number"], author_kind=AuthorKind.PERSON, author__isnull=False
    ).first()
    if kernel is None or kernel.author is None:
        return
    result = EvaluationStatus(payload["status"]).label.lower()
    if payload.get("verdict"):
        result = f"{result}, {payload['verdict']}"
    text = f"Your edit #{kernel.number} in {event.run}: {result}"
    key = f"measured-{kernel.pk}"
    do_notify(
        [kernel.author], NewNotification(NotificationKind.SUGGESTION, key, text, _kernel_page(kernel), event.run)
    )


def _tell_followers(event: RunEvent, kind: NotificationKind, text: str, key: str, link: str = "") -> None:
    run: Run = event.run
    do_notify(
        followers_of(run),
        NewNotification(kind, f"run-{run.pk}-{key}", text, link or reverse("run_page", args=[run.pk]), run),
    )


def _kernel_page(kernel: Kernel) -> str:
    return reverse("kernel_page", args=[kernel.run_id, kernel.number])


def _place_of(review: Review, comment: Comment | None) -> str:
    """Return the address of a comment, or of the page on which a review without comments is shown."""
    if comment is not None:
        return f"{reverse('thread_page', args=[comment.thread.run_id, comment.thread_id])}?comment={comment.pk}"
    if review.kernel is not None:
        return f"{reverse('diff_page', args=[review.kernel.run_id, review.kernel.number])}#review"
    return reverse("discussion", args=[review.run_id])


_ACTS: dict[str, Callable[[RunEvent], None]] = {
    BestChanged.type: _best,
    BestRefuted.type: _refuted,
    RunStateChanged.type: _state,
    RunNoted.type: _noted,
    BudgetWarned.type: _budget,
    EvaluationFinished.type: _measured,
    ReviewPublished.type: _reviewed,
}

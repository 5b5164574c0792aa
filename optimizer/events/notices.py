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
    ReviewPublished,
    RunNoted,
    RunStateChanged,
)
from optimizer.models import Comment, Kernel, NotificationKind, Review, ReviewVerdict, Run, RunEvent, RunState, User
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
        text = f"{event.run} has ended: {state.label.lower()}{'. ' + reason if reason else ''}"
        _tell_followers(event, NotificationKind.ENDED, text, f"state-{event.seq}")


def _noted(event: RunEvent) -> None:
    if event.payload.get("tone") in {"warn", "bad"}:
        _tell_followers(event, NotificationKind.STUCK, f"{event.run}: {event.payload['text']}", f"note-{event.seq}")


def _budget(event: RunEvent) -> None:
    if event.payload["percent"] >= WARN_AT_PERCENT:
        kind = event.payload["kind"]
        text = f"{event.run}: {event.payload['percent']} % of the budget for {kind.replace('_', ' ')} is spent"
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
    for kind, people, text in _listeners(review, comments):
        fresh = [person for person in people if person.pk not in told]
        told |= {person.pk for person in fresh}
        page, key = _review_page(review), f"review-{review.pk}"
        do_notify(fresh, NewNotification(kind, key, text, page, review.run, review.author))


def _listeners(review: Review, comments: list[Comment]) -> list[tuple[NotificationKind, list[User], str]]:
    """Return who is notified of a published review, in order of precedence. Nobody is notified twice."""
    where = f"{review.run} #{review.kernel.number}" if review.kernel else str(review.run)
    words = "\n".join([review.summary, *(comment.body for comment in comments)])
    names = mentioned_names(words)
    members = User.objects.filter(teams=review.run.team_id)
    named = [person for person in members if person.username.casefold() in names]
    others = User.objects.filter(comments__thread__in=[c.thread_id for c in comments],
                                 comments__review__published_at__isnull=False).distinct()  # fmt: skip
    author = [review.kernel.author] if review.kernel and review.kernel.author else []
    verdict = review.verdict_choice.label.lower() if review.verdict != ReviewVerdict.COMMENT else "comments"
    return [
        (NotificationKind.MENTION, named, f"{review.author} mentions you on {where}"),
        (NotificationKind.REPLY, list(others), f"{review.author} replies on {where}"),
        (NotificationKind.REVIEW, author, f"{review.author} on your kernel {where}: {verdict}"),
    ]


def _tell_followers(event: RunEvent, kind: NotificationKind, text: str, key: str, link: str = "") -> None:
    run: Run = event.run
    do_notify(
        followers_of(run),
        NewNotification(kind, f"run-{run.pk}-{key}", text, link or reverse("run_page", args=[run.pk]), run),
    )


def _kernel_page(kernel: Kernel) -> str:
    return reverse("kernel_page", args=[kernel.run_id, kernel.number])


def _review_page(review: Review) -> str:
    return _kernel_page(review.kernel) if review.kernel else reverse("run_page", args=[review.run_id])


_ACTS: dict[str, Callable[[RunEvent], None]] = {
    BestChanged.type: _best,
    BestRefuted.type: _refuted,
    RunStateChanged.type: _state,
    RunNoted.type: _noted,
    BudgetWarned.type: _budget,
    ReviewPublished.type: _reviewed,
}

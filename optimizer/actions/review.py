"""Write and publish reviews. Nothing is announced before it is published, so drafts cost nobody's attention."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from optimizer.access import may
from optimizer.actions.audit import log_action
from optimizer.actions.guidance import MAX_CHARACTERS, add_guidance
from optimizer.diffs.rows import Text
from optimizer.events.payloads import ReviewPublished
from optimizer.events.record import record
from optimizer.models import (
    AuditAction,
    Comment,
    Hypothesis,
    Kernel,
    Review,
    ReviewVerdict,
    Run,
    Side,
    Thread,
    User,
)
from optimizer.runs.locking import lock_run
from optimizer.text.storable import storable_text

# Characters. A longer text is a document and belongs to the knowledge base.
MAX_COMMENT = 20_000
QUOTED_LINES = 40


@dataclass(frozen=True)
class Place:
    """Describe what a thread is about: the run, a hypothesis, a kernel, or lines of a kernel (from 1, both included).

    `side` and `other` name the diff that the author was looking at.
    """

    run: Run
    kernel: Kernel | None = None
    hypothesis: Hypothesis | None = None
    first: int | None = None
    last: int | None = None
    side: str = ""
    other: Kernel | None = None


@dataclass(frozen=True)
class Words:
    """Hold a comment in Markdown, and whether it is also an instruction to the agents."""

    body: str
    is_guidance: bool = False
    for_lineage: bool = False


def check_words(user: User, run: Run, words: Words) -> Words:
    """Validate a comment and return it with storable text. Raises ValidationError with a text for the person."""
    if not may(user, run, "comment"):
        raise ValidationError("Only reviewers comment on this run.")
    body = storable_text(words.body).replace("\r\n", "\n").strip()
    if not body:
        raise ValidationError("Enter a comment.")
    # Guidance takes room in every prompt and is stored together with the lines it quotes.
    most = MAX_CHARACTERS // 2 if words.is_guidance else MAX_COMMENT
    if len(body) > most:
        raise ValidationError(f"A comment has {most:,} characters at most; this one has {len(body):,}.")
    if words.is_guidance and run.state_choice.is_terminal:
        raise ValidationError("This run has ended and takes no guidance. Comment without it, or clone the run.")
    return Words(body, words.is_guidance, words.for_lineage)


def check_place(place: Place) -> Place:
    """Validate a place and return it with both line numbers or none.

    Raises ValidationError for a kernel or hypothesis of another run, and for lines that do not exist.
    """
    foreign = [one for one in (place.kernel, place.hypothesis) if one is not None and one.run_id != place.run.pk]
    if foreign:
        raise ValidationError("This belongs to another run.")
    if place.first is None and place.last is None:
        return place
    if place.kernel is None:
        raise ValidationError("Only a kernel has lines.")
    first = place.first if place.first is not None else place.last or 0
    last = place.last if place.last is not None else first
    # People select lines upwards as well.
    first, last = min(first, last), max(first, last)
    count = len(Text.of(place.kernel.source).lines)
    if first < 1 or last > count:
        raise ValidationError(f"Kernel #{place.kernel.number} has lines 1 to {count}.")
    return Place(place.run, place.kernel, None, first, last, place.side, place.other)


def do_begin_thread(user: User, place: Place, words: Words, about: Kernel | None = None) -> Comment:
    """Start a thread with a draft comment in the person's draft review of `about`. Raises ValidationError.

    `about` is the kernel that the person is looking at; by default the thread's own.
    """
    words, place = check_words(user, place.run, words), check_place(place)
    with transaction.atomic():
        run = lock_run(place.run.pk)
        thread = _create_thread(user, run, place)
        return _add_draft(user, run, thread, words, about or place.kernel)


def do_reply(user: User, thread: Thread, words: Words, about: Kernel | None = None) -> Comment:
    """Add a draft comment to an existing thread. Raises ValidationError.

    A thread that is resolved meanwhile still accepts it: the author sees the state when publishing and can reopen it.
    """
    words = check_words(user, thread.run, words)
    with transaction.atomic():
        run = lock_run(thread.run_id)
        return _add_draft(user, run, thread, words, about or thread.kernel)


def draft_review(user: User, run: Run, kernel: Kernel | None) -> Review:
    """Return the person's draft review of a kernel or of the run itself, creating it if necessary.

    Call under the run's lock.
    """
    review, _ = Review.objects.get_or_create(run=run, kernel=kernel, author=user, published_at=None)
    return review


def do_publish_review(
    user: User,
    run: Run,
    kernel: Kernel | None,
    verdict: ReviewVerdict,
    summary: str = "",
    seen: Collection[Comment] = (),
) -> Review:
    """Publish the person's drafts on this subject with a verdict, and the drafts in `seen` wherever they were
    started.

    `seen` are the drafts on the page in front of the person. Those of other runs are published there as plain
    comments. Raises ValidationError where there is nothing to publish, and for a verdict on a run.
    """
    summary = check_summary(user, run, kernel, verdict, summary)
    with transaction.atomic():
        # Lock in ascending order: two people who publish across the same runs would otherwise deadlock.
        runs = {pk: lock_run(pk) for pk in sorted({run.pk, *(comment.thread.run_id for comment in seen)})}
        review = draft_review(user, runs[run.pk], kernel)
        here, elsewhere = _sorted_out(user, review, seen)
        if here or summary or verdict != ReviewVerdict.COMMENT:
            _publish(user, review, here, verdict, summary)
        # Only drafts of other runs are published: the empty review here would be noise.
        elif elsewhere:
            review.delete()
        else:
            raise ValidationError("Nothing to submit: write a comment or choose a verdict.")
        for (other, about), comments in elsewhere.items():
            _publish(user, Review(run=runs[other], kernel_id=about, author=user), comments)
    return review


def do_say(user: User, where: Place | Thread, words: Words) -> Comment:
    """Publish one comment immediately and alone; drafts stay drafts. Raises ValidationError."""
    words = check_words(user, where.run, words)
    where = check_place(where) if isinstance(where, Place) else where
    with transaction.atomic():
        locked = lock_run(where.run.pk)
        thread = _create_thread(user, locked, where) if isinstance(where, Place) else where
        review = Review.objects.create(run=locked, kernel=thread.kernel, author=user, published_at=timezone.now())
        comment = _create_comment(user, thread, review, words)
        _publish(user, review, [comment])
    return comment


def check_summary(user: User, run: Run, kernel: Kernel | None, verdict: ReviewVerdict, summary: str) -> str:
    """Validate a summary and return it. Raises ValidationError."""
    if not may(user, run, "comment"):
        raise ValidationError("Only reviewers comment on this run.")
    if kernel is None and verdict != ReviewVerdict.COMMENT:
        raise ValidationError("A verdict is on a kernel.")
    summary = storable_text(summary).replace("\r\n", "\n").strip()
    if len(summary) > MAX_COMMENT:
        raise ValidationError(f"A summary has {MAX_COMMENT:,} characters at most; this one has {len(summary):,}.")
    return summary


def _create_thread(user: User, run: Run, place: Place) -> Thread:
    lines: list[str] = []
    if place.kernel is not None and place.first is not None and place.last is not None:
        lines = list(Text.of(place.kernel.source).lines[place.first - 1 : place.last])
    text = "\n".join(lines)
    return Thread.objects.create(
        run=run,
        kernel=place.kernel,
        hypothesis=place.hypothesis,
        side=place.side if place.side in Side.values else "",
        other=place.other,
        first_line=place.first,
        line_count=len(lines) or None,
        text=text,
        text_hash=hashlib.sha256(text.encode()).hexdigest() if lines else "",
        created_by=user,
    )


def _add_draft(user: User, run: Run, thread: Thread, words: Words, about: Kernel | None) -> Comment:
    """Add the draft to the review of the kernel that the person is looking at, if it belongs to this run."""
    # A draft on the old side of a diff may belong to a kernel of another run.
    kernel = about if about is None or about.run_id == run.pk else thread.kernel
    return _create_comment(user, thread, draft_review(user, run, kernel), words)


def _create_comment(user: User, thread: Thread, review: Review, words: Words) -> Comment:
    return Comment.objects.create(
        thread=thread,
        review=review,
        author=user,
        body=words.body,
        is_guidance=words.is_guidance,
        guidance_for_lineage=words.is_guidance and words.for_lineage,
    )


def _sorted_out(
    user: User, review: Review, seen: Collection[Comment]
) -> tuple[list[Comment], dict[tuple[int, int | None], list[Comment]]]:
    """Split the person's drafts into those of `review` and those of other runs, the latter by run and kernel.

    Leaves out runs on which the person may no longer comment.
    """
    wanted = Q(review=review) | Q(pk__in=[comment.pk for comment in seen], author=user, review__published_at=None)
    drafts = Comment.objects.filter(wanted).select_related(
        "review", "thread__kernel", "thread__run__team", "thread__hypothesis__basis"
    )
    here: list[Comment] = []
    elsewhere: dict[tuple[int, int | None], list[Comment]] = {}
    for draft in drafts:
        thread = draft.thread
        if thread.run_id == review.run_id:
            here.append(draft)
        elif may(user, thread.run, "comment"):
            elsewhere.setdefault((thread.run_id, thread.kernel_id), []).append(draft)
    return here, elsewhere


def _publish(
    user: User,
    review: Review,
    comments: Sequence[Comment],
    verdict: ReviewVerdict = ReviewVerdict.COMMENT,
    summary: str = "",
) -> None:
    """Publish the review with these comments, pass instructions on to the agents, and delete emptied draft reviews."""
    review.publish(verdict, summary)
    left = {comment.review_id for comment in comments} - {review.pk}
    Comment.objects.filter(pk__in=[comment.pk for comment in comments]).update(review=review)
    # Comments moved into the published review leave their own drafts empty.
    Review.objects.filter(pk__in=left, comments=None).delete()
    for comment in comments:
        _guide(user, comment)
    if verdict != ReviewVerdict.COMMENT:
        log_action(AuditAction.KERNEL_REVIEWED, user, review.kernel, verdict=verdict)
    record(review.run, _published(review, comments))


def _guide(user: User, comment: Comment) -> None:
    """Give a comment that is marked as guidance to the agents, together with the lines it is about."""
    thread = comment.thread
    # The run may have ended since the draft was written; no agent would read the instruction.
    if not comment.is_guidance or thread.run.state_choice.is_terminal:
        return
    basis = thread.hypothesis.basis if thread.hypothesis else None
    kernel = (thread.kernel or basis) if comment.guidance_for_lineage else None
    add_guidance(user, thread.run, _in_context(comment), kernel, comment)


def _in_context(comment: Comment) -> str:
    """Return the comment with its subject and quoted lines, for a reader who does not see the page."""
    thread = comment.thread
    if thread.kernel is None and thread.hypothesis is None:
        return comment.body
    shown = thread.text.split("\n")[:QUOTED_LINES] if thread.first_line else []
    code = "\n".join(f"    {line[:200]}" for line in shown)
    return "\n\n".join(part for part in (f"About {thread.subject}:", code, comment.body) if part)[:MAX_CHARACTERS]


def _published(review: Review, comments: Sequence[Comment]) -> ReviewPublished:
    return ReviewPublished(
        review=review.pk,
        number=review.kernel.number if review.kernel else None,
        verdict=review.verdict,
        by=str(review.author),
        comments=len(comments),
        threads=sorted({comment.thread_id for comment in comments}),
    )

"""Change existing threads and comments: resolve, reopen, drop, edit, delete a draft."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from optimizer.access import may
from optimizer.actions.review import Words, check_words
from optimizer.events.payloads import CommentEdited, ThreadChanged
from optimizer.events.record import record
from optimizer.models import Comment, CommentEdit, Run, Thread, ThreadState, User
from optimizer.runs.locking import lock_run

THREAD_WORDS = {ThreadState.OPEN: "reopened", ThreadState.RESOLVED: "resolved", ThreadState.DROPPED: "dropped"}


def do_change_thread(user: User, thread: Thread, state: ThreadState) -> Thread:
    """Resolve, drop or reopen a thread. Raises ValidationError.

    A thread is one object wherever it is shown. Of two people who do the same at once, the second gets the error.
    """
    with transaction.atomic():
        run = lock_run(thread.run_id)
        if not may(user, run, "comment"):
            raise ValidationError("Only reviewers comment on this run.")
        row = Thread.objects.select_related("kernel", "state_by").get(pk=thread.pk)
        # Check the row as it is under the lock, not as the page showed it.
        _check_change(row, state)
        row.enter(state, user)
        number = row.kernel.number if row.kernel else None
        record(run, ThreadChanged(thread=row.pk, state=state.value, by=str(user), number=number))
    return row


def do_edit_comment(user: User, comment: Comment, body: str) -> Comment:
    """Change the text of one's own comment. Raises ValidationError.

    The earlier text of a published comment stays readable, also after an approval that relied on it, and agents keep
    what they were told.
    """
    with transaction.atomic():
        run = lock_run(comment.thread.run_id)
        row = Comment.objects.select_related("review", "thread__kernel").get(pk=comment.pk)
        _check_own(user, row)
        # Published guidance keeps the words that agents were given, so its length is no longer limited by prompts.
        guides = row.is_guidance and row.is_draft
        said = check_words(user, run, Words(body, guides)).body
        if said != row.body:
            _replace(user, run, row, said)
    return row


def do_delete_draft(user: User, comment: Comment) -> None:
    """Delete a draft comment, and its thread if that contains nothing else. Raises ValidationError."""
    with transaction.atomic():
        lock_run(comment.thread.run_id)
        row = Comment.objects.select_related("review", "thread").get(pk=comment.pk)
        _check_own(user, row)
        if not row.is_draft:
            raise ValidationError("Published comments cannot be deleted. Edit it instead.")
        thread, review = row.thread, row.review
        row.delete()
        # Drafts are invisible to others, so nobody misses an empty thread.
        if not thread.comments.exists():
            thread.delete()
        if not review.comments.exists():
            review.delete()


def _check_change(thread: Thread, state: ThreadState) -> None:
    if not thread.comments.filter(review__published_at__isnull=False).exists():
        raise ValidationError("This thread is a draft. Publish or delete it.")
    if thread.state == state:
        by = f", by {thread.state_by}" if thread.state_by else ""
        words = "open" if state == ThreadState.OPEN else f"{THREAD_WORDS[state]} already{by}"
        raise ValidationError(f"This thread is {words}.")


def _check_own(user: User, comment: Comment) -> None:
    if comment.author_id != user.pk:
        raise ValidationError("Only the author edits a comment.")


def _replace(user: User, run: Run, comment: Comment, body: str) -> None:
    before = comment.body
    comment.body = body
    if comment.is_draft:
        comment.save(update_fields=["body"])
        return
    CommentEdit.objects.create(comment=comment, body=before, editor=user)
    comment.edited_at = timezone.now()
    comment.save(update_fields=["body", "edited_at"])
    number = comment.thread.kernel.number if comment.thread.kernel else None
    record(run, CommentEdited(thread=comment.thread_id, comment=comment.pk, by=str(user), number=number))

"""Store what people say about kernels, runs and hypotheses: reviews, threads, comments.

A comment belongs to a thread, which says what it is about, and to a review, which says when it became visible and
with which verdict. While its review is a draft, a comment is visible to its author alone, and so is a thread that
contains nothing else.
"""

from __future__ import annotations

from typing import Self

from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from optimizer.models.hypothesis import Hypothesis
from optimizer.models.kernel import Kernel
from optimizer.models.run import Run
from optimizer.models.search_text import COMMENT_WORDS
from optimizer.models.team import User


class ReviewVerdict(models.TextChoices):
    """List the conclusions of a reviewer. A person's newest published verdict on a kernel counts."""

    COMMENT = "comment", "Comment"
    APPROVE = "approve", "Approve"
    REQUEST_CHANGES = "request_changes", "Request changes"

    @property
    def tone(self) -> str:
        """Return the colour token of the verdict."""
        return {"approve": "good", "request_changes": "bad"}.get(self.value, "muted")


class ThreadState(models.TextChoices):
    """List the states of a thread.

    Open threads follow their lines into later kernels; resolved and dropped threads stay where they are.
    """

    OPEN = "open", "Open"
    RESOLVED = "resolved", "Resolved"
    DROPPED = "dropped", "Dropped"

    @property
    def is_terminal(self) -> bool:
        """Return True when nobody waits for an answer. A terminal thread can be opened again."""
        return self != ThreadState.OPEN

    @property
    def tone(self) -> str:
        """Return the colour token of the state."""
        return {"open": "warn", "resolved": "good"}.get(self.value, "muted")


class Side(models.TextChoices):
    """Name the side of the diff that the author pointed at. The thread's kernel is the one on that side."""

    OLD = "old", "Old side"
    NEW = "new", "New side"


class ReviewQuerySet(models.QuerySet["Review"]):
    """Add the filters of the review table."""

    def published(self) -> Self:
        """Return the reviews that everybody who sees the run may read."""
        return self.filter(published_at__isnull=False)


class Review(models.Model):
    """Store one person's comments on a kernel (or on its run, when `kernel` is None), published together.

    A draft has `published_at` None; a person has at most one draft per subject.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="reviews")
    kernel = models.ForeignKey(Kernel, null=True, blank=True, on_delete=models.CASCADE, related_name="reviews")
    author = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="reviews")
    verdict = models.CharField(max_length=16, choices=ReviewVerdict.choices, default=ReviewVerdict.COMMENT)
    summary = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    published_at = models.DateTimeField(null=True, blank=True)

    objects = ReviewQuerySet.as_manager()

    class Meta:
        # Two conditional constraints: PostgreSQL takes NULL for distinct, so a draft without a kernel needs its own.
        constraints = [
            models.UniqueConstraint(
                fields=["author", "kernel"], condition=Q(published_at=None), name="one_draft_review_per_kernel"
            ),
            models.UniqueConstraint(
                fields=["author", "run"],
                condition=Q(published_at=None, kernel=None),
                name="one_draft_review_per_run",
            ),
            models.CheckConstraint(
                condition=Q(verdict="comment") | Q(kernel__isnull=False), name="a_verdict_is_on_a_kernel"
            ),
        ]
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.get_verdict_display()} by {self.author}"

    @property
    def verdict_choice(self) -> ReviewVerdict:
        """Return the verdict as an enumeration member, with its label and tone."""
        return ReviewVerdict(self.verdict)

    def publish(self, verdict: ReviewVerdict, summary: str) -> None:
        """Publish the draft with all its comments and save."""
        self.verdict, self.summary, self.published_at = verdict, summary, timezone.now()
        self.save()


class ThreadQuerySet(models.QuerySet["Thread"]):
    """Add the filters of the thread table."""

    def visible_to(self, user: User) -> Self:
        """Return threads with a published comment, and the person's own drafts.

        The caller has checked that the person may see the run.
        """
        said = Comment.objects.filter(thread=OuterRef("pk"))
        # A thread without published comments must not show that somebody is writing a review.
        mine = said.filter(review__published_at=None, author=user)
        return self.filter(Exists(said.filter(review__published_at__isnull=False)) | Exists(mine))

    def open(self) -> Self:
        """Return the threads that wait for an answer."""
        return self.filter(state=ThreadState.OPEN)


class Thread(models.Model):
    """Store a conversation about a run, a hypothesis, a kernel, or lines of a kernel.

    The anchor never changes: for lines it is `line_count` lines from `first_line` (counted from 1) with their text
    and its SHA-256. `side` and `other` name the diff in which the thread was started. Positions in other kernels are
    computed by `optimizer.diffs.positions` and never stored.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="threads")
    kernel = models.ForeignKey(Kernel, null=True, blank=True, on_delete=models.CASCADE, related_name="threads")
    hypothesis = models.ForeignKey(
        Hypothesis, null=True, blank=True, on_delete=models.CASCADE, related_name="threads"
    )
    side = models.CharField(max_length=3, choices=Side.choices, blank=True)
    other = models.ForeignKey(Kernel, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    first_line = models.PositiveIntegerField(null=True, blank=True)
    line_count = models.PositiveIntegerField(null=True, blank=True)
    text = models.TextField(blank=True)
    text_hash = models.CharField(max_length=64, blank=True)
    state = models.CharField(max_length=8, choices=ThreadState.choices, default=ThreadState.OPEN)
    state_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    state_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="threads")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ThreadQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["run", "state"])]
        constraints = [
            models.CheckConstraint(
                condition=Q(first_line=None, line_count=None)
                | Q(first_line__gte=1, line_count__gte=1, kernel__isnull=False),
                name="lines_are_lines_of_a_kernel",
            ),
            models.CheckConstraint(
                condition=Q(kernel=None) | Q(hypothesis=None), name="a_thread_is_about_one_thing"
            ),
        ]
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"Thread {self.pk} on {self.subject}"

    @property
    def subject(self) -> str:
        """Return in words what the thread is about."""
        if self.kernel is None:
            return f"hypothesis “{self.hypothesis}”" if self.hypothesis else "the run"
        if self.first_line is None:
            return f"kernel #{self.kernel.number}"
        return f"kernel #{self.kernel.number}, {self.lines_label}"

    @property
    def last_line(self) -> int | None:
        """Return the last line of the range, counted from 1, or None when the thread is not about lines."""
        return None if self.first_line is None else self.first_line + (self.line_count or 1) - 1

    @property
    def lines_label(self) -> str:
        """Return `line 7` or `lines 7–9`, or an empty text when the thread is not about lines."""
        if self.first_line is None:
            return ""
        return f"line {self.first_line}" if self.line_count == 1 else f"lines {self.first_line}–{self.last_line}"

    @property
    def state_choice(self) -> ThreadState:
        """Return the state as an enumeration member, with its label and tone."""
        return ThreadState(self.state)

    def enter(self, state: ThreadState, user: User) -> None:
        """Change the state, record who changed it, and save."""
        self.state, self.state_by, self.state_at = state, user, timezone.now()
        self.save(update_fields=["state", "state_by", "state_at"])


class CommentQuerySet(models.QuerySet["Comment"]):
    """Add the filters of the comment table."""

    def visible_to(self, user: User) -> Self:
        """Return published comments and the person's own drafts. The caller has checked access to the run."""
        return self.filter(Q(review__published_at__isnull=False) | Q(author=user))

    def drafts_of(self, user: User) -> Self:
        """Return the person's unpublished comments."""
        return self.filter(author=user, review__published_at=None)


class Comment(models.Model):
    """Store one statement in a thread, in Markdown.

    `is_guidance` asks that it be given to the agents once it is published (see `optimizer.models.guidance`), for the
    whole run or, with `guidance_for_lineage`, for the lineage of the thread's kernel.
    """

    thread = models.ForeignKey(Thread, on_delete=models.CASCADE, related_name="comments")
    review = models.ForeignKey(Review, on_delete=models.CASCADE, related_name="comments")
    author = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="comments")
    body = models.TextField()
    is_guidance = models.BooleanField(default=False)
    guidance_for_lineage = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    edited_at = models.DateTimeField(null=True, blank=True)

    objects = CommentQuerySet.as_manager()

    class Meta:
        indexes = [GinIndex(COMMENT_WORDS, name="comment_words")]
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.body[:60]

    @property
    def is_draft(self) -> bool:
        """Return True while only the author can see the comment."""
        return self.review.published_at is None


class CommentEdit(models.Model):
    """Store the text of a published comment before an edit."""

    comment = models.ForeignKey(Comment, on_delete=models.CASCADE, related_name="edits")
    body = models.TextField()
    editor = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    replaced_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.body[:60]

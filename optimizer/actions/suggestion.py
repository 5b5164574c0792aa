"""Turn a person's edit of a kernel into a candidate that is built, checked and timed like any other.

It costs no search budget, since no search was done. A run that has ended accepts suggestions, stays ended, and is led
by the suggestion if that is the fastest. Only a run that is being stopped accepts none.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.core.exceptions import ValidationError
from django.db import transaction

from optimizer.access import may
from optimizer.actions.quota import check_room_for_kernel
from optimizer.diffs.merge import merge
from optimizer.diffs.positions import ancestors
from optimizer.events.hypotheses import record_hypothesis
from optimizer.models import (
    AuthorKind,
    Comment,
    EvaluationStatus,
    Hypothesis,
    HypothesisKind,
    Kernel,
    Run,
    RunState,
    User,
)
from optimizer.runs.kernels import add_kernel
from optimizer.runs.locking import lock_run
from optimizer.search.base import Draft
from optimizer.text.markdown import suggested_lines
from optimizer.text.storable import storable_text
from runners.job import Language, Limits, Source

MAX_WHY = 4_000


@dataclass(frozen=True)
class Suggestion:
    """Hold the complete new source for a kernel, and the reason."""

    base: Kernel
    text: str
    title: str = ""
    why: str = ""


@dataclass(frozen=True)
class Moved:
    """Report that the base has a newer descendant than the person has seen.

    `merged` is the person's edit applied to `latest`, or None where both changed the same lines.
    """

    latest: Kernel
    merged: str | None


def check_suggest(user: User, run: Run, wanted: Suggestion) -> Suggestion:
    """Validate a suggestion and return it with storable text. Raises ValidationError with a text for the person."""
    if not may(user, run, "comment"):
        raise ValidationError("Only reviewers suggest edits.")
    if run.state == RunState.STOPPING:
        raise ValidationError("This run is stopping. Try again once it has stopped.")
    text = _like(wanted.base.source, storable_text(wanted.text))
    if text == wanted.base.source:
        raise ValidationError("Nothing changed.")
    most = Limits().source_bytes
    if len(text.encode()) > most:
        raise ValidationError(f"A source has {most >> 10:,} KiB at most.")
    if not text.strip():
        raise ValidationError("Enter the source.")
    title = storable_text(wanted.title).strip() or f"Edit of #{wanted.base.number}"
    return Suggestion(wanted.base, text, title[:200], storable_text(wanted.why).strip()[:MAX_WHY])


def do_suggest(user: User, wanted: Suggestion) -> Kernel:
    """Store the edit as a child of its base and queue its evaluation. Raises ValidationError."""
    with transaction.atomic():
        run = lock_run(wanted.base.run_id)
        wanted = check_suggest(user, run, wanted)
        check_room_for_kernel(user, len(wanted.text.encode()))
        # Unique under the run's lock, and kernels are never deleted.
        number = run.kernels.filter(author_kind=AuthorKind.PERSON).count() + 1
        hypothesis = _hypothesise(run, wanted, f"person.{number}")
        base = wanted.base
        source = Source(Language(base.language), wanted.text, dict(base.tunables), tuple(base.flags))
        draft = Draft(
            f"person.{number}",
            source,
            (base.key,),
            AuthorKind.PERSON.value,
            hypothesis_key=hypothesis.key,
            title=wanted.title,
            report=wanted.why,
        )
        return add_kernel(run, draft, author=user)


def suggestion_in(comment: Comment) -> Suggestion:
    """Return the edit that a comment's `suggestion` block makes of its thread's lines. Raises ValidationError."""
    thread, lines = comment.thread, suggested_lines(comment.body)
    kernel, first, last = thread.kernel, thread.first_line, thread.last_line
    if lines is None or kernel is None or first is None or last is None:
        raise ValidationError("This comment suggests no lines.")
    text = kernel.source.replace("\r\n", "\n").split("\n")
    # The anchor never changes, and neither does the source of a kernel: the lines are where they were.
    edited = "\n".join([*text[: first - 1], *lines, *text[last:]])
    title = (
        f"{thread.lines_label.capitalize()} of #{kernel.number}, suggested by {comment.author or 'a former member'}"
    )
    return Suggestion(kernel, edited, title, _without_block(comment.body))


def _without_block(body: str) -> str:
    """Return what a comment says before its suggestion: the reason."""
    return body.partition("```")[0].strip()


def base_moved(base: Kernel, text: str, seen: int) -> Moved | None:
    """Return the newest correct descendant of the base with a number above `seen`, or None.

    `seen` is the newest kernel number at the moment when the person began to edit.
    """
    newer = base.run.kernels.filter(number__gt=seen, evaluation__status=EvaluationStatus.CORRECT)
    # Tuned variants have the same source, so merging with them makes no sense.
    for kernel in newer.exclude(author_kind=AuthorKind.TUNER).order_by("-number")[:50]:
        if base.pk in ancestors(kernel):
            return Moved(kernel, merge(base.source, _like(base.source, text), kernel.source))
    return None


def _like(base: str, text: str) -> str:
    """Convert the text to the line ends of the base, since browsers send CR LF and only real changes should count."""
    text = text.replace("\r\n", "\n")
    return text.replace("\n", "\r\n") if base.count("\r\n") > base.count("\n") // 2 else text


def _hypothesise(run: Run, wanted: Suggestion, key: str) -> Hypothesis:
    hypothesis = Hypothesis.objects.create(
        run=run,
        key=key,
        kind=HypothesisKind.SUGGESTION,
        title=wanted.title,
        description=wanted.why,
        basis=wanted.base,
        chosen=True,
        chosen_why="A person's edit.",
    )
    record_hypothesis(run, hypothesis)
    return hypothesis

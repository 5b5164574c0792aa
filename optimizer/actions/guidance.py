"""Give instructions to the agents of a run, and withdraw them."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import transaction

from optimizer.access import may
from optimizer.events.payloads import GuidanceGiven, GuidanceWithdrawn
from optimizer.events.record import record
from optimizer.models import Comment, Guidance, Kernel, Run, User
from optimizer.runs.locking import lock_run
from optimizer.text.storable import storable_text

# About 2,000 tokens. Guidance is in every prompt, whatever the budget for other knowledge.
MAX_CHARACTERS = 8_000


def check_give_guidance(user: User, run: Run, text: str, kernel: Kernel | None = None) -> str:
    """Validate an instruction and return its cleaned text. Raises ValidationError with a text for the person."""
    text = storable_text(text).strip()
    if not may(user, run, "comment"):
        raise ValidationError("Only reviewers comment on this run.")
    if run.state_choice.is_terminal:
        raise ValidationError("This run has ended. Clone it to give guidance.")
    if kernel is not None and kernel.run_id != run.pk:
        raise ValidationError("This kernel belongs to another run.")
    if not text:
        raise ValidationError("Enter guidance.")
    if len(text) > MAX_CHARACTERS:
        raise ValidationError(f"Guidance has {MAX_CHARACTERS:,} characters at most; this has {len(text):,}.")
    return text


def do_give_guidance(user: User, run: Run, text: str, kernel: Kernel | None = None) -> Guidance:
    """Store an instruction for the next prompts of the run or, with `kernel`, of its lineage.

    Raises ValidationError.
    """
    with transaction.atomic():
        # Under the run's lock a prompt is built either before this instruction or with it.
        locked = lock_run(run.pk)
        return add_guidance(user, locked, check_give_guidance(user, locked, text, kernel), kernel)


def add_guidance(
    user: User, run: Run, text: str, kernel: Kernel | None, comment: Comment | None = None
) -> Guidance:
    """Store a checked instruction and announce it. Call under the run's lock."""
    row = Guidance.objects.create(run=run, kernel=kernel, comment=comment, author=user, text=text)
    number = kernel.number if kernel else None
    record(run, GuidanceGiven(guidance=row.pk, text=text[:500], by=str(user), number=number))
    return row


def do_withdraw_guidance(user: User, guidance: Guidance) -> Guidance:
    """Withdraw an instruction. Past prompts that contained it stay on record. Raises ValidationError."""
    with transaction.atomic():
        run = lock_run(guidance.run_id)
        row = Guidance.objects.select_related("kernel").get(pk=guidance.pk)
        if not may(user, run, "comment"):
            raise ValidationError("Only reviewers comment on this run.")
        if row.withdrawn_at is not None:
            raise ValidationError(f"Already withdrawn by {row.withdrawn_by}.")
        row.withdraw(user)
        number = row.kernel.number if row.kernel else None
        record(run, GuidanceWithdrawn(guidance=row.pk, by=str(user), number=number))
    return row

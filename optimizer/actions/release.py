"""Release kernels: requested, approved by different people, measured once more, released.

An approval counts if it comes from a person (not a service account) who may review in the run's team today, did not
write the kernel, and whose newest published verdict on it is "approve". The person who started the run counts as
well. Approvals from before the kernel was last superseded do not count for a later attempt, because what they
compared it with has changed. One current "request changes" blocks the release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.core.exceptions import ValidationError
from django.db import transaction
from django.urls import reverse

from optimizer.access import may
from optimizer.actions.audit import log_action
from optimizer.events.notify import NewNotification, do_notify
from optimizer.models import (
    AuditAction,
    AuthorKind,
    Evaluation,
    EvaluationState,
    EvaluationStatus,
    Kernel,
    NotificationKind,
    Release,
    ReleaseState,
    Review,
    ReviewVerdict,
    User,
    VerdictChoice,
)
from optimizer.runs.dispatch import dispatch
from optimizer.runs.locking import lock_run
from runners.job import Effort


@dataclass(frozen=True)
class Condition:
    """Hold one condition of a release in words, and whether it is met; `label` names the state while it is not."""

    text: str
    is_met: bool
    label: str = "Awaiting measurement"


def do_ask_release(user: User, kernel: Kernel, words: str = "") -> Release:
    """Request a release: queue a second measurement and notify the team's reviewers. Raises ValidationError."""
    if not may(user, kernel.run, "comment"):
        raise ValidationError("Only reviewers request releases.")
    with transaction.atomic():
        run = lock_run(kernel.run_id)
        _check_proposable(kernel)
        rerun = dispatch(run, kernel, Effort.CONFIRM, first=False)
        release = Release.objects.create(kernel=kernel, note=words.strip()[:300], asked_by=user, rerun=rerun)
        log_action(AuditAction.RELEASE_ASKED, user, kernel)
        text = f"{user} requested a review of {run} #{kernel.number} for release"
        new = _notification(release, f"release-{release.pk}", text, NotificationKind.REVIEW, user)
        do_notify(_reviewers_of(kernel), new)
    return release


def do_release(user: User, release: Release) -> Release:
    """Release the kernel once every condition is met. Raises ValidationError with the unmet conditions."""
    kernel = release.kernel
    if not may(user, kernel.run, "operate"):
        raise ValidationError("Only operators release kernels.")
    with transaction.atomic():
        lock_run(kernel.run_id)
        # Under the run's lock no new leader can supersede the kernel between the check and the release.
        release = (
            Release.objects.select_for_update(of=("self",)).select_related("kernel__run__team").get(pk=release.pk)
        )
        if release.state != ReleaseState.ASKED:
            raise ValidationError(f"This release is {release.get_state_display().lower()}.")
        missing = [one.text for one in conditions_of(release) if not one.is_met]
        if missing:
            raise ValidationError(missing)
        _replace_earlier(user, kernel)
        reviews = approvals_of(kernel)
        release.mark_released(user, reviews)
        approved_by = [str(review.author) for review in reviews]
        log_action(AuditAction.RELEASE_MADE, user, kernel, approved_by=approved_by, rerun=release.rerun_id)
        text = f"{kernel.run} #{kernel.number} was released"
        members = list(kernel.run.team.members.all())
        new = _notification(release, f"released-{release.pk}", text, NotificationKind.RELEASE, user)
        do_notify(members, new)
    return release


def do_withdraw_release(user: User, release: Release) -> Release:
    """Withdraw a request or a release, as its requester or as an operator. Raises ValidationError."""
    run = release.kernel.run
    if release.asked_by_id != user.pk and not may(user, run, "operate"):
        raise ValidationError("Only operators, or whoever requested it, withdraw a release.")
    with transaction.atomic():
        release = Release.objects.select_for_update(of=("self",)).select_related("kernel__run").get(pk=release.pk)
        if release.state_choice.is_terminal:
            raise ValidationError(f"This release is {release.get_state_display().lower()}.")
        release.end(ReleaseState.WITHDRAWN, user)
        log_action(AuditAction.RELEASE_WITHDRAWN, user, release.kernel)
    return release


def conditions_of(release: Release) -> list[Condition]:
    """Return the conditions of the team's rules for this release, each met or not."""
    kernel, team = release.kernel, release.kernel.run.team
    approvals, needed = len(approvals_of(kernel)), team.approvals_needed
    found = [Condition(f"{approvals} of {needed} approvals.", approvals >= needed, "Awaiting approval")]
    against = [
        str(review.author) for review in _verdicts(kernel) if review.verdict == ReviewVerdict.REQUEST_CHANGES
    ]
    if against:
        found.append(Condition(f"{', '.join(against)} requested changes.", False, "Changes requested"))
    if team.rerun_needed:
        found.append(_rerun_condition(release.rerun))
    return found


def standing_of(release: Release, conditions: Sequence[Condition]) -> tuple[str, str]:
    """Return label and tone of the state, which for a request says what is still missing."""
    if release.state != ReleaseState.ASKED:
        return release.get_state_display(), release.state_choice.tone
    missing = [one for one in conditions if not one.is_met]
    if not missing:
        return "Ready to release", "good"
    return missing[0].label, "live"


def approvals_of(kernel: Kernel) -> list[Review]:
    """Return the approvals that count now, one per person."""
    return [review for review in _verdicts(kernel) if review.verdict == ReviewVerdict.APPROVE]


def may_approve(user: User, kernel: Kernel) -> bool:
    """Return whether the person's approval would count: they may review and did not write the kernel."""
    wrote_it = kernel.author_kind == AuthorKind.PERSON and kernel.author_id == user.pk
    return not wrote_it and not user.is_service_account and may(user, kernel.run, "comment")


def differences_of(first: Evaluation | None, rerun: Evaluation | None) -> list[str]:
    """Describe how independent the second measurement was: another process, which runner, which day (UTC)."""
    if first is None or rerun is None or rerun.state != EvaluationState.DONE:
        return []
    found = ["another process"]
    before, after = (getattr(getattr(one, "job", None), "worker", "") for one in (first, rerun))
    if after:
        found.append(f"{'the same' if before == after else 'another'} runner ({after})")
    if first.finished_at and rerun.finished_at:
        days = first.finished_at.date(), rerun.finished_at.date()
        found.append(f"{'the same' if days[0] == days[1] else 'another'} day ({days[1]:%d %b %Y})")
    return found


def _verdicts(kernel: Kernel) -> list[Review]:
    """Return the newest verdict of each person whose verdict counts."""
    stale = Release.objects.filter(kernel=kernel, state=ReleaseState.STALE).order_by("-ended_at").first()
    reviews = Review.objects.published().filter(kernel=kernel).exclude(verdict=ReviewVerdict.COMMENT)
    # Approvals compared the kernel with the leader of that time.
    if stale is not None and stale.ended_at is not None:
        reviews = reviews.filter(published_at__gt=stale.ended_at)
    # A later verdict of the same person replaces the earlier one, as the reviews are in order of time.
    newest = {
        review.author_id: review for review in reviews.select_related("author").order_by("published_at", "pk")
    }
    return [one for one in newest.values() if one.author is not None and may_approve(one.author, kernel)]


def _rerun_condition(rerun: Evaluation | None) -> Condition:
    if rerun is None or rerun.state == EvaluationState.CANCELLED:
        return Condition("The second measurement was cancelled. Withdraw this request and create a new one.", False)
    if rerun.state != EvaluationState.DONE:
        return Condition("The second measurement is not finished.", False)
    # The second measurement must support the claim by itself; being merely close to the first is not enough.
    agrees = (
        rerun.status == EvaluationStatus.CORRECT and rerun.verdict == VerdictChoice.FASTER and not rerun.unconfirmed
    )
    words = "confirms the first: correct and faster" if agrees else "does not confirm the first"
    return Condition(f"The second measurement {words}.", agrees, "Not confirmed")


def _check_proposable(kernel: Kernel) -> None:
    evaluation = Evaluation.objects.filter(first_of=kernel).first()
    if evaluation is None or evaluation.status != EvaluationStatus.CORRECT:
        raise ValidationError("Only a kernel that was measured and found correct can be released.")
    if evaluation.verdict != VerdictChoice.FASTER or evaluation.unconfirmed:
        raise ValidationError("Only a kernel that is faster than the baseline can be released.")
    open_states = [ReleaseState.ASKED, ReleaseState.RELEASED]
    if Release.objects.filter(kernel=kernel, state__in=open_states).exists():
        raise ValidationError("This kernel is already released or requested.")


def _replace_earlier(user: User, kernel: Kernel) -> None:
    """End the earlier release, as a team has at most one released kernel per problem and target."""
    run = kernel.run
    earlier = Release.objects.filter(
        state=ReleaseState.RELEASED, kernel__run__team=run.team_id, kernel__run__target=run.target_id,
        kernel__run__problem_version__problem=run.problem_version.problem_id,
    )  # fmt: skip
    # Lock each row, or two releases at the same moment could both stay in force.
    for release in earlier.select_for_update(of=("self",)):
        release.end(ReleaseState.REPLACED, user)


def _reviewers_of(kernel: Kernel) -> list[User]:
    people = User.objects.filter(teams=kernel.run.team_id, is_active=True)
    return [person for person in people if may_approve(person, kernel)]


def _notification(release: Release, key: str, text: str, kind: NotificationKind, actor: User) -> NewNotification:
    kernel = release.kernel
    page = reverse("release_page", args=[kernel.run_id, kernel.number])
    return NewNotification(kind, key, text, page, kernel.run, actor)

"""Start a round of the regression watch: time a team's released kernels again."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from optimizer.actions.audit import log_action
from optimizer.enqueue import enqueue_retiming
from optimizer.models import (
    AuditAction,
    Evaluation,
    EvaluationStatus,
    Release,
    ReleaseState,
    RetimeRound,
    Retiming,
    Target,
    Team,
    TeamRole,
    User,
)


def do_start_retiming(user: User | None, team: Team, target: Target, reason: str = "") -> RetimeRound:
    """Store a round over the team's released kernels of the target, and enqueue its first step.

    Raises ValidationError where nothing is released, a round is under way, or the person may not.
    """
    role = TeamRole.OWNER if user is None else user.role_in(team)
    if role is None or role.rank < TeamRole.OPERATOR.rank:
        raise ValidationError("Operators time released kernels again.")
    released = Release.objects.filter(
        state=ReleaseState.RELEASED, kernel__run__team=team, kernel__run__target=target
    ).select_related("kernel__evaluation", "rerun", "kernel__run")
    pairs = [(release, reference) for release in released if (reference := _reference(release)) is not None]
    if not pairs:
        raise ValidationError(f"{team} has released no kernel for {target.key}.")
    try:
        with transaction.atomic():
            made = RetimeRound.objects.create(team=team, target=target, reason=reason[:200], created_by=user)
            Retiming.objects.bulk_create(
                Retiming(round=made, run=release.kernel.run, kernel=release.kernel, reference=reference)
                for release, reference in pairs
            )
            log_action(AuditAction.RETIME_STARTED, user, team, subject=str(target.key), round=made.pk)
            enqueue_retiming(made.pk)
    except IntegrityError as error:
        raise ValidationError("A round on this target is under way already.") from error
    return made


def _reference(release: Release) -> Evaluation | None:
    """Return the measurement to compare with: the second one, in cold processes, or else the first."""
    for evaluation in (release.rerun, release.kernel.evaluation):
        if evaluation is not None and evaluation.status == EvaluationStatus.CORRECT and evaluation.speedup:
            return evaluation
    return None

"""Start a round of the regression watch: time a team's released kernels again."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from optimizer.actions.audit import log_action
from optimizer.enqueue import enqueue_retiming
from optimizer.models import (
    AuditAction,
    RetimeRound,
    Retiming,
    Target,
    Team,
    TeamRole,
    User,
)
from optimizer.queries.watched import pairs_of, software_on

# Codes of the ValidationErrors by which callers tell the refusals apart.
NOTHING_RELEASED = "nothing_released"
UNDER_WAY = "under_way"


def do_start_retiming(user: User | None, team: Team, target: Target, reason: str = "") -> RetimeRound:
    """Store a round over the team's released kernels of the target, and enqueue its first step.

    Raises ValidationError where nothing is released, a round is under way, or the person may not.
    """
    role = TeamRole.OWNER if user is None else user.role_in(team)
    if role is None or role.rank < TeamRole.OPERATOR.rank:
        raise ValidationError("Only operators re-time released kernels.")
    pairs = pairs_of(team.pk, target.pk)
    if not pairs:
        raise ValidationError(f"{team} has no released kernels for {target.key}.", NOTHING_RELEASED)
    try:
        with transaction.atomic():
            made = RetimeRound.objects.create(
                team=team, target=target, reason=reason[:200], created_by=user, software=software_on(target.pk)
            )
            Retiming.objects.bulk_create(
                Retiming(round=made, run=release.kernel.run, kernel=release.kernel, reference=reference)
                for release, reference in pairs
            )
            log_action(AuditAction.RETIME_STARTED, user, team, subject=str(target.key), round=made.pk)
            enqueue_retiming(made.pk)
    except IntegrityError as error:
        raise ValidationError("Re-timing on this target is already in progress.", UNDER_WAY) from error
    return made

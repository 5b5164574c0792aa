"""Start rounds of the regression watch by themselves: on new software of a runner, and by schedule.

A round starts only where a live runner could serve it. What one round has covered is no reason for another, so a new
driver or compiler is followed by one round, however many runners have it and however often this is called.
"""

from __future__ import annotations

import datetime as dt
import logging

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils import timezone

from optimizer.actions.retiming import do_start_retiming
from optimizer.models import RetimeRound, Target, Team
from optimizer.queries.watched import has_runner, last_timed_at, new_software, places

logger = logging.getLogger(__name__)


def start_due_rounds() -> list[int]:
    """Start every round that is due and return their ids. Safe to call at any time, by several processes."""
    started = []
    for team_id, target_id in places():
        if (reason := due_reason(team_id, target_id)) and (made := _start(team_id, target_id, reason)) is not None:
            started.append(made.pk)
    return started


def due_reason(team_id: int, target_id: int) -> str:
    """Return why the team's released kernels of the target are to be timed now, or an empty text."""
    open_round = RetimeRound.objects.filter(team=team_id, target=target_id, finished_at=None)
    if not has_runner(target_id) or open_round.exists():
        return ""
    if settings.RETIME_ON_CHANGE and (reason := new_software(team_id, target_id)):
        return reason
    every = dt.timedelta(days=settings.RETIME_DAYS)
    last = last_timed_at(team_id, target_id)
    if every and last is not None and timezone.now() - last >= every:
        return f"Scheduled, every {settings.RETIME_DAYS:g} days"
    return ""


def _start(team_id: int, target_id: int, reason: str) -> RetimeRound | None:
    team, target = Team.objects.get(pk=team_id), Target.objects.get(pk=target_id)
    try:
        return do_start_retiming(None, team, target, reason)
    except ValidationError as refusal:
        # Another process was faster, or the last release was withdrawn a moment ago.
        logger.info("no round for %s on %s: %s", team, target.key, " ".join(refusal.messages))
        return None

"""Ask which released kernels the regression watch covers, and on which software they were and would be timed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

from django.db.models import QuerySet
from django.utils import timezone

from optimizer.models import Evaluation, EvaluationStatus, Release, ReleaseState, RetimeRound, Runner
from optimizer.models.runner import LOST_AFTER

Software = dict[str, str]
LABELS = {"driver": "driver", "compiler": "compiler", "torch": "torch", "triton": "Triton"}


def places() -> list[tuple[int, int]]:
    """Return team and target, by id, of everything that is released."""
    released = Release.objects.filter(state=ReleaseState.RELEASED)
    return list(released.order_by().values_list("kernel__run__team", "kernel__run__target").distinct())


def pairs_of(team_id: int, target_id: int) -> list[tuple[Release, Evaluation]]:
    """Return the team's releases for the target, each with the measurement to compare with, without its result."""
    released = Release.objects.filter(
        state=ReleaseState.RELEASED, kernel__run__team=team_id, kernel__run__target=target_id
    ).select_related("kernel__evaluation", "rerun", "kernel__run")
    # Asked every minute: results have megabytes, and sources are not looked at.
    released = released.defer("rerun__result", "kernel__evaluation__result", "kernel__source", "kernel__report")
    return [(release, reference) for release in released if (reference := _reference(release)) is not None]


def software_on(target_id: int) -> list[Software]:
    """Return the different sets of software that the target's live runners report, in the order of their names."""
    return _distinct(runner.facts.get("software") for runner in _alive(target_id).order_by("name"))


def has_runner(target_id: int) -> bool:
    """Return whether a live runner could time kernels of the target now."""
    return _alive(target_id).exists()


def new_software(team_id: int, target_id: int) -> str:
    """Return what is new, in words, if a live runner has software on which a released kernel was not yet timed.

    A kernel whose measurement does not say its software counts as timed on anything until a round has recorded it.
    """
    present = software_on(target_id)
    if not present:
        return ""
    rounds = list(RetimeRound.objects.filter(team=team_id, target=target_id).order_by("pk"))
    pairs = pairs_of(team_id, target_id)
    measured_on = _software_of([reference.pk for _, reference in pairs])
    for release, reference in pairs:
        since = [one for one in rounds if release.released_at and one.created_at > release.released_at]
        covered = [software for one in since for software in one.software]
        known = _distinct([measured_on[reference.pk], *covered])
        if known and (unknown := next((one for one in present if one not in known), None)) is not None:
            return _difference(known[-1], unknown)
    return ""


def last_timed_at(team_id: int, target_id: int) -> dt.datetime | None:
    """Return when the newest round began or, before the first one, the oldest release."""
    newest = RetimeRound.objects.filter(team=team_id, target=target_id).order_by("-pk").first()
    if newest is not None:
        return newest.created_at
    moments = [release.released_at for release, _ in pairs_of(team_id, target_id) if release.released_at]
    return min(moments, default=None)


def _alive(target_id: int) -> QuerySet[Runner]:
    """Return the live runners that could time kernels of the target now."""
    return Runner.objects.filter(target=target_id, draining=False, heartbeat_at__gt=timezone.now() - LOST_AFTER)


def _software_of(evaluations: Sequence[int]) -> dict[int, object]:
    """Return the software that each evaluation ran on, by id, as its result says."""
    rows = Evaluation.objects.filter(pk__in=evaluations)
    return dict(rows.values_list("pk", "result__environment__software"))


def _reference(release: Release) -> Evaluation | None:
    """Return the measurement to compare with: the second one, in cold processes, or else the first."""
    for evaluation in (release.rerun, release.kernel.evaluation):
        if evaluation is not None and evaluation.status == EvaluationStatus.CORRECT and evaluation.speedup:
            return evaluation
    return None


def _distinct(found: Iterable[object]) -> list[Software]:
    """Return the dictionaries among what was reported, each once, with texts alone: a runner may report anything."""
    kept: list[Software] = []
    for one in found:
        if isinstance(one, dict):
            plain = {name: str(one[name])[:120] for name in LABELS if one.get(name)}
            if plain and plain not in kept:
                kept.append(plain)
    return kept


def _difference(before: Software, now: Software) -> str:
    changed = [name for name in LABELS if before.get(name) != now.get(name)]
    words = [f"{LABELS[name]} {now.get(name, 'absent')} (was {before.get(name, 'absent')})" for name in changed]
    return "New " + ", ".join(words)

"""Find the runners that can measure, and drain or undrain them."""

from __future__ import annotations

import datetime as dt

from django.db.models import QuerySet
from django.utils import timezone

from optimizer.models import CallState, Job, JobState, LlmCall, Runner, User
from optimizer.models.runner import LOST_AFTER
from optimizer.text.storable import storable
from runners import wire
from runners.dispatch import DISPATCHERS
from runners.dispatch.celery import CeleryDispatcher
from runners.dispatch.kernelbot import KernelBotDispatcher
from runners.dispatch.spool import SpoolDispatcher
from runners.job import Effort, NoiseFloor

# Runners behind a spool report only when its directory is synchronised.
SPOOL_LOST_AFTER = dt.timedelta(minutes=15)
_HOW_TO_START = {
    CeleryDispatcher.name: "Start one on the machine that has the device: "
    "celery -A kernelsci_site worker -Q bench.{target} -c 1",
    SpoolDispatcher.name: "Jobs wait until somebody runs: manage.py spool sync DIR --target {target}",
    KernelBotDispatcher.name: "Start one that has an account at KernelBot: "
    "celery -A kernelsci_site worker -Q kernelbot.{target} -c 1",
}


def live_runners(target: str, dispatcher: str) -> QuerySet[Runner]:
    """Return the runners that would take jobs of this target and dispatcher (both by key) now.

    They have a recent heartbeat, are not draining, and serve the queue. Raises KeyError for an unknown dispatcher.
    """
    queue = DISPATCHERS[dispatcher].queue_for(target, Effort.FULL)
    # Runners behind a spool are heard of only at each synchronisation.
    patience = SPOOL_LOST_AFTER if dispatcher == SpoolDispatcher.name else LOST_AFTER
    alive = Runner.objects.filter(heartbeat_at__gt=timezone.now() - patience, draining=False)
    return alive.filter(queues__contains=[queue]).order_by("name")


def absence_of_runners(target: str, dispatcher: str) -> str:
    """Return a warning for a person whose run nobody would measure, or an empty text where a runner is available."""
    if live_runners(target, dispatcher).exists():
        return ""
    how = _HOW_TO_START[dispatcher].format(target=target)
    return f"No runner for {target} is there. Kernels are built here meanwhile; measuring waits for one. {how}"


def do_note_noise_floor(name: str, floor: NoiseFloor | None) -> None:
    """Remember the noise floor that a runner reported with a result; nothing where it reported none."""
    if floor is not None:
        Runner.objects.filter(name=name).update(noise_floor=storable(wire.to_plain(floor)))


def do_drain_runner(user: User, runner: Runner, note: str) -> None:
    """Let the runner finish its job and claim no more. The note records the reason and the person."""
    _set(
        runner,
        draining=True,
        note=f"{user.get_username()}: {note}" if note else f"Drained by {user.get_username()}.",
    )


def do_undrain_runner(user: User, runner: Runner) -> None:
    """Let the runner claim jobs again."""
    _set(runner, draining=False, note="")


def _set(runner: Runner, *, draining: bool, note: str) -> None:
    runner.draining, runner.drain_note = draining, note[:300]
    runner.save(update_fields=["draining", "drain_note"])


DEPLOY_NOTE = "Drained for a deploy."


def do_drain_for_deploy() -> int:
    """Drain every worker that is not drained yet and return how many. Workers drained by people keep their note."""
    return Runner.objects.filter(draining=False).update(draining=True, drain_note=DEPLOY_NOTE)


def do_undrain_after_deploy() -> int:
    """Undrain the workers of `do_drain_for_deploy` and return how many. Workers drained by people stay drained."""
    return Runner.objects.filter(draining=True, drain_note=DEPLOY_NOTE).update(draining=False, drain_note="")


def at_work() -> list[str]:
    """Describe the open work of this installation: jobs under a lease, and questions being asked.

    Jobs in a spool are left out, because they survive a deploy.
    """
    now = timezone.now()
    # A job whose lease has expired has no worker any more and does not delay a deploy.
    jobs = Job.objects.filter(state=JobState.RUNNING, lease_until__gt=now).exclude(dispatcher=SpoolDispatcher.name)
    calls = LlmCall.objects.filter(state=CallState.ASKING, lease_until__gt=now)
    told = [f"job {pk} at {worker}" for pk, worker in jobs.values_list("pk", "worker")]
    return told + [f"question {pk}" for pk in calls.values_list("pk", flat=True)]

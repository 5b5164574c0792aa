"""Find the runners that can measure, and the work that is open."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from optimizer.models import CallState, Evaluation, Job, JobLog, JobState, LlmCall, Runner
from optimizer.models.runner import LOST_AFTER
from runners.dispatch import DISPATCHERS
from runners.dispatch.celery import CeleryDispatcher
from runners.dispatch.kernelbot import KernelBotDispatcher
from runners.dispatch.spool import SpoolDispatcher
from runners.job import Effort
from runners.targets import Ceilings, ceilings_in

# Runners behind a spool report only when its directory is synchronised.
SPOOL_LOST_AFTER = dt.timedelta(minutes=15)
_HOW_TO_START = {
    CeleryDispatcher.name: "Start one on the machine with the device: "
    "python -m runners work-site ADDRESS --queue bench.{target} --token-file FILE",
    SpoolDispatcher.name: "Jobs wait until you run: {site} spool sync DIR --target {target}",
    KernelBotDispatcher.name: "Start one with an account at KernelBot: "
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
    how = _HOW_TO_START[dispatcher].format(target=target, site=settings.SITE_COMMAND)
    return f"Waiting for a runner for {target}. Kernels are built meanwhile. {how}"


def history_of(runner: Runner, most: int) -> list[Job]:
    """Return the runner's newest jobs with what they were about."""
    about = (
        "evaluation__kernel__run__problem_version__problem",
        "tool_call__turn",
        "tool_call__run",
        "ahead_batch__run",
    )
    jobs = Job.objects.filter(worker=runner.name[:100]).select_related(*about)
    heavy = ("spec", "evaluation__result", "evaluation__kernel__source", "evaluation__kernel__report",
             "evaluation__kernel__meta", "evaluation__kernel__run__problem_version__bundle")  # fmt: skip
    return list(jobs.defer(*heavy).order_by("-pk")[:most])


def log_tail(job: Job, most_chars: int) -> str:
    """Return the end of the live log of a job's newest attempt. Each chunk is a message and begins a line."""
    chunks = JobLog.objects.filter(job=job, fence=job.fence).order_by("-seq").values_list("text", flat=True)
    newest: list[str] = []
    missing = most_chars
    for chunk in chunks.iterator(chunk_size=50):
        newest.append(chunk.removesuffix("\n"))
        missing -= len(newest[-1]) + 1
        if missing <= 0:
            break
    return "\n".join(reversed(newest))[-most_chars:]


def ceilings_of(jobs: Sequence[Job]) -> Ceilings:
    """Return what a probe had found on the machine, from the newest of its jobs' results that says so."""
    found = Evaluation.objects.filter(job__in=[job.pk for job in jobs], result__environment__has_key="ceilings")
    kept = found.order_by("-job__pk").values_list("result__environment__ceilings", flat=True).first()
    return ceilings_in({"ceilings": kept})


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

"""Show runners and queues, and drain runners."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Count, Min, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from optimizer.actions.runner import do_drain_runner, do_undrain_runner
from optimizer.models import Job, JobState, Run, Runner, Target, User
from optimizer.models.choices import OPEN_JOB_STATES
from optimizer.queries.runners import ceilings_of, history_of, log_tail
from optimizer.queries.timing import noise_floor_from, noise_text, noise_warning
from optimizer.views.signed_in import user_of
from runners.signing.keyring import Keyring, Role
from runners.targets import TARGETS

HISTORY = 50
LOG_CHARS = 20_000
# The variable that shows a worker one device only, by vendor.
VISIBLE_DEVICES = {"amd": "HIP_VISIBLE_DEVICES", "nvidia": "CUDA_VISIBLE_DEVICES"}


@dataclass(frozen=True)
class QueueNow:
    """Hold one queue: how many jobs wait and run, and how long the oldest has waited."""

    name: str
    waiting: int
    running: int
    oldest_s: float | None
    served_by: int


@login_required
@require_safe
def runners(request: HttpRequest) -> HttpResponse:
    """List all runners and queues."""
    user = user_of(request)
    jobs = ("current_job__evaluation__kernel__run", "current_job__tool_call__turn", "current_job__ahead_batch")
    listed = list(Runner.objects.select_related("target", *jobs).order_by("name"))
    for runner in listed:
        _add_noise(runner)
    context = {
        "runners": listed,
        "queues": _queues(listed),
        "has_noise": any(runner.noise_floor for runner in listed),
        "may_drain": user.is_superuser,
        "visible_runs": _visible_runs(user, listed),
    }
    return render(
        request, "runners/_lists.html" if request.headers.get("HX-Request") else "runners/list.html", context
    )


@login_required
@require_safe
def runner_page(request: HttpRequest, runner_id: int) -> HttpResponse:
    """Show one runner: its machine, noise floor, ceilings, newest jobs and the end of a log.

    Jobs of runs that the person may not see are counted and not named.
    """
    user = user_of(request)
    runner = get_object_or_404(Runner.objects.select_related("target", "current_job"), pk=runner_id)
    _add_noise(runner)
    jobs = history_of(runner, HISTORY)
    seen = set(
        Run.objects.visible_to(user).filter(pk__in=[_run_id(job) for job in jobs]).values_list("pk", flat=True)
    )
    shown = next((job for job in jobs if _run_id(job) in seen), None)
    context = {
        "runner": runner,
        "jobs": [(job, _run_id(job) in seen) for job in jobs],
        "ceilings": ceilings_of(jobs),
        "log_job": shown,
        "log": log_tail(shown, LOG_CHARS) if shown else "",
        "may_drain": user.is_superuser,
    }
    return render(request, "runners/page.html", context)


@login_required
@require_safe
def runner_add(request: HttpRequest) -> HttpResponse:
    """Show the commands that start a runner, for the target that is chosen."""
    targets = list(Target.objects.order_by("title"))
    chosen = next((one for one in targets if one.key == request.GET.get("target")), None)
    chosen = chosen or next((one for one in targets if one.key == "cpu"), None)
    key = chosen.key if chosen else "cpu"
    context = {"targets": targets, "chosen": chosen, "command": _command(request, key), "site_key": _site_key()}
    return render(request, "runners/add.html", context)


@login_required
@require_POST
def runner_drain(request: HttpRequest, runner_id: int) -> HttpResponse:
    """Drain a runner or undrain it."""
    runner = _operated(request, runner_id)
    if request.POST.get("drain") == "off":
        do_undrain_runner(user_of(request), runner)
        messages.success(request, f"Resumed {runner.name}.")
    else:
        do_drain_runner(user_of(request), runner, request.POST.get("note", "").strip())
        messages.success(request, f"Draining {runner.name}: it finishes its job and takes no more.")
    return redirect("runner_page", runner_id=runner.pk)


def _command(request: HttpRequest, key: str) -> str:
    """Return the command that starts a worker for the first device of a target's kind."""
    visible = VISIBLE_DEVICES.get(TARGETS[key].vendor) if key in TARGETS else None
    shown = f"{visible}=0 " if visible else ""
    address = request.build_absolute_uri("/").rstrip("/")
    return f"{shown}python -m runners work-site {address} --queue bench.{key} --token-file token"


def _site_key() -> str:
    """Return the public key with which this site signs jobs."""
    return Keyring().public(Role.SITE)


def _run_id(job: Job) -> int | None:
    """Return the run that a job belongs to."""
    if job.evaluation is not None:
        return job.evaluation.kernel.run_id
    other = getattr(job, "tool_call", None) or getattr(job, "ahead_batch", None)
    return other.run_id if other is not None else None


def _operated(request: HttpRequest, runner_id: int) -> Runner:
    """Return the runner for administrators only, since runners serve all teams."""
    if not user_of(request).is_superuser:
        raise Http404
    return get_object_or_404(Runner, pk=runner_id)


def _add_noise(runner: Runner) -> None:
    """Give the template the noise floor that the runner reported last."""
    floor = noise_floor_from(runner.noise_floor)
    vars(runner).update(floor=floor, noise=noise_text(floor), noise_warning=noise_warning(floor))


def _queues(listed: list[Runner]) -> list[QueueNow]:
    now = timezone.now()
    rows = Job.objects.filter(state__in=OPEN_JOB_STATES).values("queue").order_by("queue")
    counted = rows.annotate(
        waiting=Count("pk", filter=Q(state=JobState.QUEUED)),
        running=Count("pk", filter=Q(state=JobState.RUNNING)),
        oldest=Min("created_at", filter=Q(state=JobState.QUEUED)),
    )
    return [
        QueueNow(row["queue"], row["waiting"], row["running"], _age_s(row["oldest"], now),
                 sum(row["queue"] in runner.queues and runner.is_alive for runner in listed))
        for row in counted
    ]  # fmt: skip


def _age_s(since: dt.datetime | None, now: dt.datetime) -> float | None:
    return (now - since).total_seconds() if since else None


def _visible_runs(user: User, listed: list[Runner]) -> set[int]:
    """Return which of the runs being measured the person may open."""
    jobs = [runner.current_job for runner in listed if runner.current_job]
    measured = [run_id for job in jobs if (run_id := _run_id(job)) is not None]
    return set(Run.objects.visible_to(user).filter(pk__in=measured).values_list("pk", flat=True))

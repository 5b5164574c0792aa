"""Define the fault matrix. Each fault says whether it found something to strike; those that did are counted."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import redis
from django.conf import settings
from django.db import connection

from optimizer.actions.job import do_finish_job
from optimizer.models import Job, JobState
from optimizer.runs.dispatch import spec_of
from runners.dispatch.celery import notify_worker
from runners.job import JobResult
from runners.job_source import Receipt
from tests.chaos import disk
from tests.chaos.world import World, children, kill
from tests.factories import correct_result

MARK = "chaos"
"""Harness version of results that must never be stored."""
PAUSE_S = 3.0
Fault = Callable[[World], bool]
receipts: dict[str, int] = {"refused": 0, "repeated": 0}
accepted_wrongly: list[str] = []


def _kills(prefix: str) -> Fault:
    """Return a fault that kills a part's first process with SIGKILL; its pool dies with it."""
    return lambda world: kill(world.pid(prefix))


def kill_busy_worker(world: World) -> bool:
    """Kill a worker in the middle of a job with SIGKILL."""
    return kill(_busy_worker(world))


def kill_pool_process(world: World) -> bool:
    """Kill the process that measures, inside a worker that lives on, with SIGKILL."""
    pid = _busy_worker(world)
    pool = children(pid) if pid else []
    return bool(pool) and kill(world.random.choice(pool))


def stop_worker_beyond_its_lease(world: World) -> bool:
    """Stop a worker until its job is another's, so that it hands in late."""
    pid = _busy_worker(world)
    if pid is None:
        return False
    family = [pid, *children(pid)]
    for one in family:
        kill(one, signal.SIGSTOP)
    for one in family:
        world.after(settings.LEASE_S + 4.0, lambda one=one: kill(one, signal.SIGCONT))  # type: ignore[misc]
    return True


def stop_timer(world: World) -> bool:
    """Stop the timer: nothing is swept, no run goes on."""
    pid = world.pid("timer")
    family = [pid, *children(pid)] if pid else []
    for one in family:
        kill(one, signal.SIGSTOP)
        world.after(PAUSE_S, lambda one=one: kill(one, signal.SIGCONT))  # type: ignore[misc]
    return bool(family)


def stall_database(world: World) -> bool:
    """Stop every process of PostgreSQL for a moment."""
    pid = world.pid("postgres")
    family = [pid, *children(pid)] if pid else []
    for one in family:
        kill(one, signal.SIGSTOP)
        world.after(1.5, lambda one=one: kill(one, signal.SIGCONT))  # type: ignore[misc]
    return bool(family)


def restart_database(world: World) -> bool:
    """Shut the database down fast; the supervisor starts it again."""
    return kill(world.pid("postgres"), signal.SIGINT)


def cut_connections(world: World) -> bool:
    """End every session of the database but ours, some between a commit and its reply."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        return bool(cursor.fetchone()[0])


def wipe_redis(world: World) -> bool:
    """Remove all messages, read or not."""
    return bool(redis.Redis.from_url(settings.REDIS_SERVER_URL, socket_timeout=5).flushall())


def ring_twenty_times(world: World) -> bool:
    """Send the same message again and again: duplicate deliveries."""
    for _ in range(20):
        notify_worker("bench.cpu")
    return True


def repeat_result(world: World) -> bool:
    """Repeat a result that was accepted, as after a lost reply."""
    job = _some_job(world, JobState.DONE)
    if job is None:
        return False
    return _hand_in(job, job.fence, Receipt.REPEATED)


def late_result(world: World) -> bool:
    """Send a result under an old fence, for a job that was claimed again where there is one."""
    job = _some_job(world, JobState.RUNNING, fence__gte=2) or _some_job(world, JobState.RUNNING)
    if job is None:
        return False
    return _hand_in(job, job.fence - 1, Receipt.REFUSED)


def fill_spool_disk(world: World) -> bool:
    """Fill the spool's disk for a while."""
    if not disk.fill(world.spool):
        return False
    world.after(PAUSE_S, lambda: disk.free(world.spool))
    return True


def tear_spool_file(world: World) -> bool:
    """Write half a job in place of a whole one, as a copy that broke off leaves it."""
    return any(_tear(path) for path in sorted((world.spool / "jobs").glob("[0-9]*.json")))


def torn_spool_result(world: World) -> bool:
    """Write half a result where a worker is still at work."""
    for claimed in sorted((world.spool / "claimed").glob("[0-9]*.json")):
        (world.spool / "results" / claimed.name).write_text('{"job_id": "evaluation-')
        return True
    return False


FAULTS: dict[str, Fault] = {
    "kill -9 of a bench worker at work": kill_busy_worker,
    "kill -9 of the process that measures": kill_pool_process,
    "kill -9 of the bench worker of another target": _kills("bench.gfx942"),
    "kill -9 of the build worker": _kills("build"),
    "kill -9 of the agents, calls under way": _kills("agents"),
    "kill -9 of the timer": _kills("timer"),
    "timer stopped": stop_timer,
    "kill -9 of the web server": _kills("web"),
    "kill -9 of the spool worker": _kills("spool.work"),
    "kill -9 of the spool's exchange": _kills("spool.sync"),
    "bench worker stopped beyond its lease": stop_worker_beyond_its_lease,
    "kill -9 of PostgreSQL": _kills("postgres"),
    "PostgreSQL restarted": restart_database,
    "PostgreSQL stalls": stall_database,
    "all database connections cut": cut_connections,
    "kill -9 of Redis": _kills("redis"),
    "Redis wiped": wipe_redis,
    "20 duplicate messages": ring_twenty_times,
    "result delivered twice": repeat_result,
    "late result under an old fence": late_result,
    "spool's disk full": fill_spool_disk,
    "spool: half a job file": tear_spool_file,
    "spool: half a result file": torn_spool_result,
}


def _busy_worker(world: World) -> int | None:
    """Return the first process of a worker that has a job in hand."""
    job = _some_job(world, JobState.RUNNING, queue="bench.cpu")
    return world.pid(job.worker.partition("@")[0]) if job else None


def _some_job(world: World, state: JobState, **more: object) -> Job | None:
    some = list(Job.objects.filter(state=state, **more).order_by("-pk")[:50])
    return world.random.choice(some) if some else None


def _hand_in(job: Job, fence: int, expected: Receipt) -> bool:
    """Try to have a marked result stored; note the answer. A database that is away answers nothing."""
    receipt = do_finish_job(job.pk, fence, _marked(job))
    if receipt is Receipt.RECORDED:
        accepted_wrongly.append(f"job {job.pk} under fence {fence}")
    receipts[receipt.value] = receipts.get(receipt.value, 0) + 1
    return receipt in {expected, Receipt.REFUSED, Receipt.REPEATED}


def _marked(job: Job) -> JobResult:
    return replace(correct_result(spec_of(job), 1.0), harness_version=MARK)


def _tear(path: Path) -> bool:
    try:
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    except OSError:
        return False
    return True

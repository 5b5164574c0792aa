"""Test a real worker with the real harness that is killed in the middle of a job."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.utils import timezone

from optimizer.loop import advance
from optimizer.models import Evaluation, EvaluationStatus, Job, JobState, Run, RunEvent, RunState
from optimizer.models.choices import OPEN_EVALUATION_STATES
from optimizer.queries.budgets import Budget
from optimizer.runs.dispatch import spec_of, with_spec
from optimizer.runs.history import problem_of
from optimizer.upkeep.sweep import sweep
from runners.job import Effort, Language
from tests.factories import make_run
from tests.site.served import bench_worker

PATIENCE_S = 420.0


@pytest.fixture
def start_worker(servers: None, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Return a function that starts bench workers on the test database; whatever is left of them is killed at the
    end."""
    workers: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        number = len(workers)
        options = ["-c", "1", "-n", f"bench{number}@test", "-l", "INFO", "--without-gossip", "--without-mingle"]
        # The device's lock is this site's own: what else evaluates on this machine must not hold its workers up.
        worker = bench_worker(tmp_path / f"worker{number}.log", *options, KERNELSCI_LOCKS=str(tmp_path))
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        for pid in family(worker.pid):
            kill(pid)
        worker.wait()


def family(pid: int) -> list[int]:
    """Return a process and all its descendants, whatever session they are in."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += parents.get(found[-1], [])
    return found


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Return False for what has ended, buried or not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def wait_for(what: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not what():
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.5)


def with_seeds_in_cpp(run: Run) -> SimpleNamespace:
    """Return what a run is begun with: two seeds in C++, so that one job waits while the other loses its worker."""
    return SimpleNamespace(seeds=[seed for seed in problem_of(run).seeds if seed.source.language is Language.CPP])


@pytest.mark.slow
@pytest.mark.evaluates
@pytest.mark.django_db(transaction=True)
def test_a_bench_worker_killed_in_the_middle_of_a_job_costs_one_attempt_and_nothing_else(
    start_worker: Callable[[], subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optimizer.loop.seeds.problem_of", with_seeds_in_cpp)
    run = make_run(budget=Budget(evaluations=1), settings={"confirm": False})
    advance(run.pk)
    for job in Job.objects.all():
        # Sign the job anew: workers refuse one that differs from what the site signed.
        with_spec(job, replace(spec_of(job), effort=Effort.QUICK), run.problem_version_id).save()
    assert Job.objects.count() == 2
    worker = start_worker()
    under_way = Evaluation.objects.exclude(stage="").filter(job__state=JobState.RUNNING)
    wait_for(lambda: sweep() and under_way.exists() and len(family(worker.pid)) > 2)

    victim = Job.objects.get(state=JobState.RUNNING)
    lost = family(worker.pid)
    assert len(lost) > 2, "the harness has processes of its own"
    for pid in lost[:2]:
        kill(pid)  # the worker and its pool process: nobody is left to tidy up

    wait_for(lambda: not any(is_alive(pid) for pid in lost), 30)
    Job.objects.filter(pk=victim.pk).update(lease_until=timezone.now())
    start_worker()

    def has_ended() -> bool:
        sweep()
        if Evaluation.objects.filter(state__in=OPEN_EVALUATION_STATES).exists():
            return False  # Nothing to decide yet, and advancing takes many queries.
        advance(run.pk)
        return RunState(Run.objects.get(pk=run.pk).state).is_terminal

    wait_for(has_ended)
    victim.refresh_from_db()
    ended = RunEvent.objects.filter(run=run, type="evaluation.finished", payload__evaluation=victim.evaluation_id)
    assert (victim.state, victim.attempts, victim.fence) == (JobState.DONE, 2, 2)
    assert ended.count() == 1
    assert Run.objects.get(pk=run.pk).state == RunState.FINISHED
    assert set(Evaluation.objects.values_list("status", flat=True)) == {EvaluationStatus.CORRECT}

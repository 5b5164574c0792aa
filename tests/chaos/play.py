"""One performance: runs are kept going, faults strike, everything comes to an end, and the rows are looked at."""

from __future__ import annotations

import argparse
import itertools
import shutil
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from django.db.models import Q

from benchmarks.installation import provenance, start_run
from kernelsci_site.services.var import Var
from optimizer.actions.run import do_resume_run
from optimizer.models import Job, JobState, LlmCall, Problem, Provider, Run, RunState, Target, Team
from optimizer.models.run import RunTransitionError
from optimizer.runs.locking import RUN_OF_JOB
from tests.chaos.faults import FAULTS, PAUSE_S
from tests.chaos.invariants import INVARIANTS
from tests.chaos.models import TroubledModels, troubled_models
from tests.chaos.report import Recovery, Report, receipts_in
from tests.chaos.world import World, ask, world
from tests.llm_server import KEY

ACTIVE = [state for state in RunState if not state.is_terminal]
RUNS_AT_ONCE = 6
LOOK_EVERY_S = 0.5
NEEDS_A_MOMENT = {"kill -9 of PostgreSQL", "PostgreSQL restarted", "kill -9 of Redis", "spool's disk full"}
"""After these the next fault waits longer, or it would strike nothing but the same outage."""


@dataclass
class Wound:
    """Hold a fault, and the jobs that were being worked on as it struck."""

    at: float
    jobs: set[int]


@dataclass
class Play:
    """Hold what has happened so far."""

    options: argparse.Namespace
    world: World
    report: Report
    kinds: Iterator[dict[str, object]]
    wounds: list[Wound] = field(default_factory=list)
    looked_at: float = 0.0

    def act(self) -> None:
        """Strike again and again while runs go on, then wait for the end."""
        next_fault = time.monotonic() + 5.0
        faults: deque[str] = deque()
        while not self._is_enough():
            self.step()
            if time.monotonic() >= next_fault:
                next_fault = time.monotonic() + self._strike_one_of(faults)
        deadline = time.monotonic() + self.options.patience
        while time.monotonic() < deadline and not self._is_over():
            self.step(start=False)

    def step(self, *, start: bool = True) -> None:
        """Tend the parts for a moment, and now and then look at runs and faults."""
        self.world.tick()
        if time.monotonic() - self.looked_at < LOOK_EVERY_S:
            return
        self.looked_at = time.monotonic()
        ask(self._resume_paused, None)
        ask(self._heal, None)
        if start:
            ask(self._keep_runs_going, None)

    def _is_enough(self) -> bool:
        jobs = ask(lambda: Job.objects.exclude(state__in=[JobState.QUEUED, JobState.RUNNING]).count(), 0)
        return bool(sum(self.report.faults.values()) >= self.options.faults and jobs >= self.options.jobs)

    def _is_over(self) -> bool:
        return self.world.is_settled and not ask(lambda: Run.objects.filter(state__in=ACTIVE).exists(), True)

    def _strike_one_of(self, faults: deque[str]) -> float:
        """Inject the first fault that finds something to strike; seconds until the next. Those that found nothing
        come next."""
        if len(faults) < len(FAULTS):
            faults.extend(self.world.random.sample(sorted(FAULTS), len(FAULTS)))
        name = next((name for name in list(faults) if self._strike(name)), None)
        if name is None:
            return LOOK_EVERY_S
        faults.remove(name)
        return float(self.options.every + (PAUSE_S if name in NEEDS_A_MOMENT else 0))

    def _strike(self, name: str) -> bool:
        """Inject one fault; it counts when it found something to strike."""
        nobody: set[int] = set()
        open_jobs = ask(lambda: set(_running()), nobody)
        if not ask(lambda: FAULTS[name](self.world), False):
            return False
        self.report.faults[name] += 1
        if open_jobs:
            self.wounds.append(Wound(time.monotonic(), open_jobs))
        return True

    def _heal(self) -> None:
        """Note that a fault is over when every job that it found under way has ended."""
        if not self.wounds:
            return
        watched = set().union(*(wound.jobs for wound in self.wounds))
        still = set(
            Job.objects.filter(pk__in=watched, state__in=[JobState.QUEUED, JobState.RUNNING]).values_list(
                "pk", flat=True
            )
        )
        healed = [wound for wound in self.wounds if not wound.jobs & still]
        self.report.recoveries += [Recovery(time.monotonic() - wound.at, _last_of(wound.jobs)) for wound in healed]
        self.wounds = [wound for wound in self.wounds if wound.jobs & still]

    def _keep_runs_going(self) -> None:
        """Start enough runs, but no more jobs than were asked for once there were enough faults."""
        missing = RUNS_AT_ONCE - Run.objects.filter(state__in=ACTIVE).count()
        for _ in range(missing):
            start_run("chaos", **next(self.kinds))  # type: ignore[arg-type]

    def _resume_paused(self) -> None:
        """Resume runs that were paused: three failures of infrastructure in a row pause a run."""
        for run in Run.objects.filter(state=RunState.PAUSED):
            try:
                do_resume_run(None, run)
                self.report.resumed += 1
            except RunTransitionError:
                continue


def play(var: Var, options: argparse.Namespace) -> int:
    """Run everything, from the start of the servers to the report."""
    report = Report(provenance(options.seed))
    with troubled_models(options.seed) as models, world(var, options.seed, options.bench, options.port) as stage:
        provide(models)
        performance = Play(options, stage, report, kinds_of_runs(options))
        performance.act()
        tell(report, var, models, stage)
        if options.keep_logs:
            shutil.copytree(var.root / "log", options.keep_logs, dirs_exist_ok=True)
    print(report.text())
    return int(not report.holds(options.jobs, options.faults))


def tell(report: Report, var: Var, models: TroubledModels, stage: World) -> None:
    """Count what happened and look whether everything holds."""
    report.faults += models.troubles
    report.jobs = Counter(Job.objects.values_list("state", flat=True))
    report.claimed_again = Job.objects.filter(fence__gt=1).count()
    report.runs = Run.objects.count()
    report.calls = Counter(LlmCall.objects.values_list("state", flat=True))
    report.by_workers = receipts_in(var.root / "log")
    report.lost = Job.objects.filter(Q(state=JobState.QUEUED) | Q(state=JobState.RUNNING)).count()
    report.broken = {name: look() for name, look in INVARIANTS.items()}
    report.left_out = sorted(set(FAULTS) - set(report.faults))


def provide(models: TroubledModels) -> None:
    """Store the team's provider: the server in trouble."""
    row = Provider(team=Team.objects.get(), name="troubled", base_url=models.url, default_model="m1",
                   allow_private=True, prices={"m1": {"input": 1.0, "cached": 0.5, "output": 2.0}})  # fmt: skip
    row.set_key(KEY)
    row.save()


def kinds_of_runs(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield the kinds of runs in turn: two that tune, one that asks models, one through the spool, one that is built
    first for a GPU, one with a confirmation, and, with --real, one that is really measured."""
    gpu = {"target": Target.objects.get(key="gfx942"), "settings": {"confirm": False}}
    kinds: list[dict[str, object]] = [
        {"settings": {"confirm": False, "sampler": "random", "concurrency": 4}},
        {"strategy": "sampling", "settings": {"confirm": False, "concurrency": 4},
         "providers": {"default": {"provider": "troubled"}}},
        {"dispatcher": "spool", "settings": {"confirm": False, "sampler": "random"}},
        gpu,
        {"settings": {"confirm": True, "sampler": "random", "concurrency": 2}},
    ]  # fmt: skip
    real = [{"problem_version": Problem.objects.get(slug="layernorm_residual").latest(), "evaluations": 3}]
    for number, kind in enumerate(itertools.chain(real if options.real else [], itertools.cycle(kinds))):
        yield {"evaluations": options.evaluations, "seed": options.seed * 1000 + number, **kind}


def _last_of(jobs: set[int]) -> str:
    """Return what kept a fault's recovery waiting: the job that ended last, by its road and how often it was
    claimed."""
    job = Job.objects.filter(pk__in=jobs).order_by("finished_at").last()
    if job is None:
        return "a job that is gone"
    run = Run.objects.get(pk=Job.objects.filter(pk=job.pk).values(run=RUN_OF_JOB)[:1])
    problem = run.problem_version.problem.slug
    return f"{problem}, {job.queue} by {job.dispatcher}, claimed {job.fence} ×"


def _running() -> list[int]:
    return list(Job.objects.filter(state=JobState.RUNNING).values_list("pk", flat=True))

"""A rehearsed deploy: runs go on and a browser watches; workers are drained, every process of the site but its two
servers is replaced, and everything goes on.

Nothing may be done twice: no job is claimed a second time, no question is lost with its asker, every run comes to its
end, and the browser has every event once.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable

from django.conf import settings
from django.test import Client

from benchmarks.installation import provenance, start_run
from benchmarks.live import Watcher, watch
from kernelsci_site.services.var import Var
from optimizer.actions.runner import do_drain_for_deploy, do_undrain_after_deploy
from optimizer.models import CallState, Job, JobState, LlmCall, Run, Team
from optimizer.queries.runners import at_work
from tests.chaos.models import troubled_models
from tests.chaos.play import ACTIVE, provide
from tests.chaos.world import World, world
from tests.factories import make_user

OURS = ("timer", "agents", "build", "bench.", "web")
PATIENCE_S = 300.0
EVALUATIONS = 16
NEVER = sys.maxsize
KINDS: tuple[dict[str, object], ...] = (
    {"settings": {"confirm": False, "sampler": "random", "concurrency": 4}},
    {"settings": {"confirm": True, "sampler": "random", "concurrency": 2}},
    {"strategy": "sampling", "settings": {"confirm": False, "concurrency": 4},
     "providers": {"default": {"provider": "troubled"}}},
)  # fmt: skip


def rehearse(var: Var, port: int) -> int:
    """Run the rehearsal, from the start of the servers to the verdict."""
    print(provenance())
    with troubled_models(seed=1) as models, world(var, seed=1, bench=2, port=port) as stage:
        provide(models)
        runs = [start_run("deploy", EVALUATIONS, **kind).pk for kind in KINDS]
        browser = Browser(stage, runs[0])
        until(stage, "work is under way", lambda: _done() >= 8 and bool(at_work()))
        replaced = deploy(stage)
        until(stage, "the runs are over", lambda: not _open_runs())
        faults = browser.faults() + what_went_wrong()
    print(f"{replaced} processes replaced, {_told(faults)}")
    return int(bool(faults))


def deploy(stage: World) -> int:
    """Deploy as docs/operations.md says (drain, stop and start, undrain), and return how many processes were replaced.
    How many processes were replaced."""
    do_drain_for_deploy()
    until(stage, "drained", lambda: not at_work())
    ours = [keeper for keeper in stage.supervisor.keepers if keeper.part.name.startswith(OURS)]
    before = {keeper.part.name: keeper.child for keeper in ours}
    for child in before.values():
        assert child is not None
        child.ask_to_stop()
    until(stage, "stopped and started", lambda: all(
        keeper.is_alive and keeper.child is not before[keeper.part.name] for keeper in ours
    ))  # fmt: skip
    do_undrain_after_deploy()
    return len(ours)


def until(stage: World, what: str, is_so: Callable[[], bool]) -> None:
    """Let the world go on until something is so. Raises TimeoutError."""
    began = time.monotonic()
    while not is_so():
        stage.tick()
        if time.monotonic() - began > PATIENCE_S:
            raise TimeoutError(f"not within {PATIENCE_S:.0f} s: {what}")
    print(f"{what:24} {time.monotonic() - began:6.1f} s", flush=True)


class Browser:
    """Look at a run all the while, on a thread of its own."""

    def __init__(self, stage: World, run: int) -> None:
        self.run = run
        self.seen = Watcher(last=0)
        where = f"ws://localhost:{stage.address[1]}/ws/runs/{run}/"
        threading.Thread(target=self._look, args=(where, _cookie()), daemon=True).start()

    def _look(self, where: str, cookie: str) -> None:
        asyncio.run(watch(where, cookie, self.seen, NEVER, asyncio.Semaphore(0)))

    def faults(self) -> list[str]:
        """Return what of the run did not come, or came twice."""
        last = Run.objects.get(pk=self.run).last_seq
        deadline = time.monotonic() + 30
        while self.seen.last < last and time.monotonic() < deadline:
            time.sleep(0.2)
        print(f"the browser has {len(self.seen.got)} of {last} events")
        return [] if self.seen.got == list(range(1, last + 1)) else ["the browser missed events or has some twice"]


def what_went_wrong() -> list[str]:
    """Return the jobs and questions that a deploy without loss would not have."""
    again = Job.objects.filter(fence__gt=1).count()
    uncertain = LlmCall.objects.filter(state=CallState.UNCERTAIN).count()
    print(
        f"{Job.objects.count()} jobs, {again} claimed again; {LlmCall.objects.count()} questions, {uncertain} lost"
    )
    return [f"{again} jobs were begun twice"] * bool(again) + [f"{uncertain} questions lost"] * bool(uncertain)


def _cookie() -> str:
    """Return the session cookie of a member of the team."""

    client = Client()
    client.force_login(make_user(Team.objects.get()))
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


def _done() -> int:
    return Job.objects.filter(state=JobState.DONE).count()


def _open_runs() -> bool:
    return Run.objects.filter(state__in=ACTIVE).exists()


def _told(faults: list[str]) -> str:
    return "; ".join(faults) or "nothing was lost, nothing was done twice"

"""Make rows for tests, and imitate a harness that answers at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from django.db import transaction

from optimizer.actions.problem import do_store_problem
from optimizer.actions.run import NewRun, do_start_run
from optimizer.actions.target import do_sync_targets
from optimizer.calls.prepare import prepare
from optimizer.job_source import DatabaseJobSource
from optimizer.loop import advance
from optimizer.models import (
    CallState,
    Job,
    Kernel,
    KernelParent,
    LlmCall,
    Membership,
    Problem,
    ProblemVersion,
    Provider,
    Run,
    RunState,
    Target,
    Team,
    TeamRole,
    User,
)
from optimizer.queries.budgets import Budget
from runners.job import (
    CaseResult,
    Effort,
    JobResult,
    JobSpec,
    Language,
    ProblemBundle,
    Speedup,
    StageResult,
    Status,
    Verdict,
)
from runners.problems import load, shipped
from runners.worker import work_once
from tests.kept_rows import insert_kept, keep_rows
from tests.llm_server import LlmServer

QUEUE = "bench.cpu"
SHIPPED = (Target, Problem, ProblemVersion)
# a source whose lines can be told apart
BASE = "".join(f"float line_{n} = {n}.0f;\n" for n in range(1, 101))
_numbers = itertools.count(1)


def make_team(name: str = "") -> Team:
    """Create a team of its own."""
    slug = name or f"team-{next(_numbers)}"
    return Team.objects.create(name=slug, slug=slug)


def make_user(team: Team | None = None, role: TeamRole = TeamRole.OPERATOR, name: str = "") -> User:
    """Create a person, in a team if one is named."""
    user = User.objects.create_user(name or f"person-{next(_numbers)}", password="correct horse")
    if team is not None:
        Membership.objects.create(team=team, user=user, role=role)
    return user


def make_run(team: Team | None = None, user: User | None = None, **changes: Any) -> Run:
    """Create a pending run: softmax on the CPU, tuned, four evaluations."""
    store_problems_and_targets()
    team = team or make_team()
    start: dict[str, Any] = {
        "team": team,
        "problem_version": Problem.objects.get(slug="softmax_rows").latest(),
        "target": Target.objects.get(key="cpu"),
        "strategy": "tune",
        "budget": Budget(evaluations=4),
    }
    return do_start_run(user, NewRun(**(start | changes)))


def store_problems_and_targets() -> None:
    """Store the shipped problems and the known targets, unless the test has them already.

    Most tests begin with neither, and get copies of the rows that the first one made: to open and store all problems
    again took a tenth of a second of processor time a test, and to send their rows half as long.
    """
    if not Problem.objects.exists() and not Target.objects.exists():
        keep_shipped()
        insert_kept(SHIPPED)
    elif not Target.objects.exists() or Problem.objects.filter(origin="shipped").count() < len(shipped_problems()):
        do_store_shipped()


def do_store_shipped() -> None:
    """Store the known targets and the shipped problems by the product's actions."""
    do_sync_targets()
    for bundle in shipped_problems():
        do_store_problem(bundle)


@cache
def keep_shipped() -> None:
    """Keep the rows of the targets and shipped problems as the actions make them.

    They are rolled back here. Their primary keys are safe to use again: sequences do not go back, so no other row has
    them, and what processes cache under them is the same for every copy.
    """
    with transaction.atomic():
        do_store_shipped()
        keep_rows(SHIPPED)
        transaction.set_rollback(True)


@cache
def shipped_problems() -> list[ProblemBundle]:
    """Return every shipped problem."""
    return [load(name) for name in shipped()]


def make_kernel(
    run: Run, source: str = "int main;", parent: Kernel | None = None, *, title: str = "", language: str = "cpp"
) -> Kernel:
    """Create a kernel as an agent would add it, not measured."""
    number = run.kernels.count()
    kernel = Kernel.objects.create(
        run=run, number=number, key=f"k{number}", title=title, author_kind="agent", language=language, source=source,
        content_hash=f"{run.pk}-{number}",
    )  # fmt: skip
    if parent is not None:
        KernelParent.objects.create(kernel=kernel, parent=parent)
    return kernel


def make_provider(server: LlmServer, team: Team, **changes: Any) -> Provider:
    """Create the team's provider of language models: a server of the test's, with its key."""
    fields = {"name": "tiny", "base_url": server.url, "default_model": "m1", "allow_private": True} | changes
    row = Provider(team=team, **fields)
    row.set_key(server.key)
    row.save()
    return row


def make_question(kernel: Kernel) -> LlmCall:
    """Create a question about a kernel, with the prompt that is stored when it is sent."""
    call = LlmCall.objects.create(
        run=kernel.run, key="ask", role="solo", provider="x", state=CallState.ASKING,
        context={"node": kernel.key, "window": [kernel.key]}, answer_schema="KernelAnswer",
    )  # fmt: skip
    prepare(call)
    call.refresh_from_db()
    return call


def fake_time_us(spec: JobSpec) -> float:
    """Return a time that depends on the source alone: different kernels take different times, the same one always the
    same."""
    return 50.0 + int(spec.candidate.content_hash[:6], 16) % 1000 / 10


def fake_evaluate(spec: JobSpec, *, cancel: Any = None, on_progress: Any = None) -> JobResult:
    """Return what a harness would answer for a kernel that works; Python ones are the reference itself."""
    if on_progress is not None:
        on_progress("build", "compiled\n")
        on_progress("timing", "")
    if spec.effort == Effort.CONFIRM:
        return correct_result(spec, fake_time_us(spec))
    return correct_result(spec, 200.0 if spec.candidate.language == Language.PYTHON else fake_time_us(spec))


def correct_result(spec: JobSpec, time_us: float, baseline_us: float = 200.0) -> JobResult:
    """Return the result of a correct kernel of one case."""
    ratio = baseline_us / time_us
    verdict = Verdict.FASTER if ratio > 1.05 else Verdict.SAME if ratio > 0.95 else Verdict.SLOWER
    case = CaseResult(
        "big",
        ok=True,
        candidate_us=time_us,
        candidate_low_us=time_us * 0.98,
        candidate_high_us=time_us * 1.02,
        baseline_us=baseline_us,
        samples={"candidate": [time_us, time_us * 1.01], "baseline": [baseline_us]},
    )
    parent = Speedup(1.1, 1.05, 1.15, "parent", 1.02, Verdict.FASTER) if spec.parent else None
    return JobResult(
        job_id=spec.job_id,
        status=Status.CORRECT,
        verdict=verdict,
        speedup=Speedup(ratio, ratio * 0.97, ratio * 1.03, "torch_eager", 1.02, verdict),
        versus_parent=parent,
        cases=[case],
        stages=[StageResult("build", 0.3), StageResult("timing", 1.5)],
        sandbox="bubblewrap",
        harness_version="test",
    )


def failed_result(spec: JobSpec, status: Status, reason: str = "no") -> JobResult:
    """Return the result of a kernel that failed."""
    return JobResult(job_id=spec.job_id, status=status, reasons=[reason], stages=[StageResult("build", 0.1)])


def drive(
    run: Run,
    evaluate: Callable[..., JobResult] = fake_evaluate,
    rounds: int = 100,
    queues: Sequence[str] = (QUEUE,),
) -> Run:
    """Advance the run and work its queue in turn, as the workers would, until it rests: it has ended, it is paused, or
    a round without work changed nothing, so that no later one would.
    """
    source, before = DatabaseJobSource(), None
    for _ in range(rounds):
        advance(run.pk)
        worked = False
        while any(work_once(source, queue, "test-runner", evaluate) for queue in queues):
            worked = True
        run.refresh_from_db()
        if RunState(run.state).is_terminal or (run.state == RunState.PAUSED and not worked):
            break
        now = None if worked else _standing(run)
        if now is not None and now == before:
            break
        before = now
    return run


def _standing(run: Run) -> object:
    """Return what an advance could have changed."""
    calls = tuple(run.calls.order_by("pk").values_list("pk", "state"))
    jobs = tuple(Job.objects.order_by("pk").values_list("pk", "state"))
    return run.state, run.finish_reason, run.events.count(), calls, jobs

"""A run begins from the best of earlier runs that its team may see, and says so."""

from __future__ import annotations

import json
from dataclasses import replace as changed
from typing import Any

import pytest
from django.utils import timezone

from optimizer.actions.record import do_import_record
from optimizer.actions.run import do_clone_run
from optimizer.agents.prompting import build_prompt
from optimizer.calls.prepare import knowledge_of
from optimizer.calls.record import record_of
from optimizer.llm.recording import RecordError, RunRecord, from_bytes, to_bytes
from optimizer.loop.seeds import add_seeds
from optimizer.loop.steps import source_of
from optimizer.models import (
    AuthorKind,
    Finding,
    LlmCall,
    Problem,
    Record,
    Run,
    RunState,
    Target,
    Team,
    TeamRole,
    User,
)
from optimizer.queries.budgets import Budget
from optimizer.queries.earlier_runs import earlier_runs
from optimizer.reports.facts import facts_of
from optimizer.reports.markdown import markdown_report
from optimizer.runs.history import history_of
from optimizer.search.base import Ask
from runners.job import Effort, JobResult, JobSpec, Language
from runners.tunables import parse
from runners.worker import Evaluate
from tests.driven_runs import make_finished_run
from tests.factories import correct_result, drive, fake_evaluate, make_run, make_team, make_user
from tests.rollback import rolled_back

pytestmark = pytest.mark.django_db


def begun_with(run: Run) -> list[dict[str, int]]:
    """Return the kernels of earlier runs with which a run began."""
    found = run.kernels.filter(meta__has_key="earlier").order_by("number")
    assert all(kernel.author_kind == AuthorKind.SEED for kernel in found)
    return [kernel.meta["earlier"] for kernel in found]


def notes_of(run: Run) -> list[str]:
    return list(run.events.filter(type="run.note").values_list("payload__text", flat=True))


def another(run: Run, user: User | None = None, **changes: Any) -> Run:
    """Make a further run of the same team, advanced as far as its seeds."""
    return drive(make_run(run.team, user, **changes), rounds=1)


def test_the_second_run_begins_with_the_first_ones_best_and_its_tuned_values(finished: Run) -> None:
    best = finished.best_kernel
    assert best is not None and best.author_kind == AuthorKind.TUNER
    second = another(finished)
    assert begun_with(second) == [{"run": finished.pk, "number": best.number}]
    warm = second.kernels.get(key="seed.earlier1")
    assert parse(warm.source).defaults() == best.tunables and warm.tunables == {}
    assert second.spent_evaluations == 0, "what a run is given costs it nothing"


def test_a_clone_begins_with_the_best_of_its_original(finished: Run, member: User) -> None:
    clone = drive(do_clone_run(member, finished), rounds=1)
    assert [one["run"] for one in begun_with(clone)] == [finished.pk]


def test_the_run_and_its_report_name_what_it_began_with(finished: Run) -> None:
    second = drive(make_run(finished.team))
    assert finished.best_kernel is not None
    named = f"#{finished.best_kernel.number} of run {finished.pk}"
    assert f"Warm start with the best of earlier runs: {named}." in notes_of(second)
    assert facts_of(second).warm_start == [named]
    assert "Warm start" in markdown_report(facts_of(second))
    assert "Warm start" not in markdown_report(facts_of(finished)).partition("## Settings")[0]


def test_a_replay_begins_with_earlier_kernels_only_where_its_recording_did(finished: Run) -> None:
    team, replayed = finished.team, {"default": {"provider": "replay", "record": "mine"}}
    asker = make_run(team, strategy="sampling", title="asked")
    call = LlmCall.objects.create(
        run=asker, key="a1.solo", role="solo", state="answered", context={"node": "seed.reference"}
    )
    for node, takes_over in (("seed.reference", False), ("seed.earlier1", True)):
        LlmCall.objects.filter(pk=call.pk).update(context={"node": node, "window": [node]})
        Record.objects.all().delete()
        do_import_record(make_user(team, TeamRole.OWNER), team, "mine", to_bytes(record_of(asker)))
        replay = make_run(team, strategy="sampling", providers=replayed)
        add_seeds(replay)
        assert replay.kernels.filter(key__startswith="seed.earlier").exists() == takes_over


def test_a_replay_begins_with_the_kernels_of_its_recording_though_there_are_better_ones_now(finished: Run) -> None:
    warm = another(finished)
    taken = warm.kernels.get(key="seed.earlier1")
    do_import_record(make_user(finished.team, TeamRole.OWNER), finished.team, "mine", to_bytes(record_of(warm)))
    assert finished.best_kernel is not None
    finished.best_kernel.source = "// faster\n" + finished.best_kernel.source
    finished.best_kernel.save()
    replay = make_run(finished.team, providers={"default": {"provider": "replay", "record": "mine"}})
    add_seeds(replay)
    again = replay.kernels.get(key="seed.earlier1")
    assert (again.source, again.author_kind, again.title) == (taken.source, AuthorKind.SEED, taken.title)
    assert "Warm start with kernels of earlier runs from the recording: 1." in notes_of(replay)
    assert another(finished).kernels.get(key="seed.earlier1").source != taken.source, "others take the better one"


@pytest.fixture(scope="module")
def plain_record(finished_run: Run) -> str:
    """Return the recording of a run that began with a kernel of `finished`, made once for the module."""
    with rolled_back():
        return json.dumps(record_of(another(finished_run)).model_dump(mode="json"))


@pytest.fixture
def plain(plain_record: str, finished: Run) -> dict[str, Any]:
    """Return that recording, to be changed."""
    found: dict[str, Any] = json.loads(plain_record)
    return found


@pytest.mark.parametrize(
    "change",
    [
        {"key": "a1"},
        {"key": "seed.reference"},
        {"key": "seed.earlier0"},
        {"parent": "seed.reference"},
        {"language": "klingon"},
    ],
)
def test_a_recording_whose_earlier_kernels_could_stand_for_others_is_refused(
    plain: dict[str, Any], change: dict[str, str]
) -> None:
    read(plain)
    plain["earlier"][0] |= change
    with pytest.raises(RecordError):
        read(plain)


def test_a_recording_may_have_kernels_in_every_language(plain: dict[str, Any]) -> None:
    for language in Language:
        plain["earlier"][0]["language"] = language.value
        assert read(plain).earlier[0].language == language


def test_a_recording_with_an_earlier_kernel_twice_is_refused(plain: dict[str, Any]) -> None:
    plain["earlier"] *= 2
    with pytest.raises(RecordError):
        read(plain)


def test_a_replay_begins_with_as_many_kernels_as_a_run_and_in_languages_of_its_target(
    finished: Run, plain: dict[str, Any]
) -> None:
    (one,) = plain["earlier"]
    plain["earlier"] = [one | {"key": f"seed.earlier{n}"} for n in range(1, 8)]
    plain["earlier"][0]["language"] = "cuda"
    do_import_record(make_user(finished.team, TeamRole.OWNER), finished.team, "mine", json.dumps(plain).encode())
    replay = make_run(finished.team, providers={"default": {"provider": "replay", "record": "mine"}})
    add_seeds(replay)
    taken = replay.kernels.filter(key__startswith="seed.earlier").values_list("key", flat=True)
    assert list(taken) == ["seed.earlier2", "seed.earlier3"]


def read(plain: dict[str, Any]) -> RunRecord:
    return from_bytes(json.dumps(plain).encode())


def test_a_run_may_be_started_without(finished: Run) -> None:
    assert begun_with(another(finished, settings={"warm_start": False})) == []
    assert begun_with(another(finished, settings={"preset": "as_published"})) == []


def test_nothing_comes_from_another_team_target_or_problem(finished: Run) -> None:
    stranger = drive(make_run(make_team()), rounds=1)
    assert begun_with(stranger) == []
    elsewhere = another(finished, target=Target.objects.get(key="sm_90"))
    assert begun_with(elsewhere) == []


def test_a_run_with_another_baseline_gives_its_best_after_those_with_the_same(finished: Run) -> None:
    Run.objects.filter(pk=finished.pk).update(baseline="torch_compile", best_speedup_low=9)
    assert [one["run"] for one in begun_with(another(finished))] == [finished.pk]
    same = make_run(finished.team)
    Run.objects.filter(pk=same.pk).update(best_kernel=finished.best_kernel, best_speedup_low=2)
    assert list(earlier_runs(make_run(finished.team))) == [same, finished]


def test_a_private_runs_kernel_reaches_no_run_that_others_see(team: Team, member: User) -> None:
    private = make_finished_run(team, member, is_private=True)
    assert private.best_kernel is not None
    assert begun_with(another(private, member)) == []
    assert begun_with(another(private, make_user(team, TeamRole.OWNER), is_private=True)) == []
    assert [one["run"] for one in begun_with(another(private, member, is_private=True))] == [private.pk]


def test_equal_kernels_of_two_runs_are_taken_once(finished: Run) -> None:
    make_finished_run(finished.team, settings={"warm_start": False})
    assert len(begun_with(another(finished))) == 1


# findings of earlier runs


def findings(run: Run) -> list[str]:
    return [item.text for item in knowledge_of(run) if item.text.startswith("Learnt")]


def learn(run: Run, text: str, source: str) -> None:
    """Store a finding for every run of the problem on the target."""
    problem = run.problem_version.problem
    Finding.objects.create(team=run.team, problem=problem, target=run.target, text=text, source=source)


@pytest.mark.parametrize("cold", [{"warm_start": False}, {"preset": "as_published"}])
def test_without_a_warm_start_a_run_reads_its_own_findings_and_those_that_no_run_made(
    run: Run, cold: dict[str, Any]
) -> None:
    second = make_run(run.team, settings=cold)
    learn(run, "Learnt by the first.", source_of(run))
    learn(run, "Learnt by the second.", source_of(second))
    learn(run, "Learnt from a paper.", "run of the mill")
    assert findings(second) == ["Learnt by the second.", "Learnt from a paper."]
    assert list(history_of(second).findings) == findings(second)
    assert len(findings(run)) == 3, "a warm start includes the findings of other runs"


# kernels of other problems


def references(run: Run) -> list[str]:
    return [item.title for item in knowledge_of(run) if item.scope == "kernel"]


def test_a_problem_of_the_same_kind_lends_its_best_kernel_as_a_reference(finished: Run) -> None:
    Run.objects.filter(pk=finished.pk).update(best_speedup_low=1.5)
    related = Problem.objects.get(slug="layernorm_residual")
    assert references(another(finished, problem_version=related.latest())) == []
    Problem.objects.filter(pk=related.pk).update(title="Softmax and layer normalisation")
    run = another(finished, problem_version=related.latest())
    (title,) = references(run)
    assert f"of run {finished.pk}" in title and "Row-wise softmax" in title
    assert begun_with(run) == [], "a kernel of another problem is read and not run"
    cold = another(finished, problem_version=related.latest(), settings={"warm_start": False})
    assert references(cold) == []


def lent_to(finished: Run, **changes: Any) -> Run:
    """Make a run of agents on another problem, to which the finished run lends its best kernel."""
    Run.objects.filter(pk=finished.pk).update(best_speedup_low=1.5)
    Problem.objects.filter(slug="layernorm_residual").update(title="Softmax and layer normalisation")
    related = Problem.objects.get(slug="layernorm_residual").latest()
    agents: dict[str, Any] = {"strategy": "reflexion", "providers": {"default": {"provider": "inbox"}}}
    return another(finished, problem_version=related, **(agents | changes))


def test_a_run_notes_the_kernel_of_another_problem_that_its_prompts_contain(finished: Run) -> None:
    assert finished.best_kernel is not None
    lent = f"Warm start: prompts contain #{finished.best_kernel.number} of run {finished.pk}, on another problem."
    assert lent in notes_of(lent_to(finished))
    assert lent not in notes_of(lent_to(finished, settings={"warm_start": False}))
    assert lent not in notes_of(lent_to(finished, strategy="tune", providers={})), "there are no prompts"


def test_the_report_names_the_kernel_of_another_problem_once_a_prompt_has_contained_it(finished: Run) -> None:
    assert finished.best_kernel is not None
    run = lent_to(finished)
    assert facts_of(run).warm_start == []
    context = {"node": "seed.reference", "window": []}
    prompt = build_prompt(Ask("a1.solo", "solo", context, "KernelAnswer"), history_of(run), knowledge_of(run))
    for key in ("a1.solo", "a2.solo"):
        LlmCall.objects.create(run=run, key=key, role="solo", provider="inbox", context_report=prompt.report)
    named = f"#{finished.best_kernel.number} of run {finished.pk}, on another problem, in prompts"
    assert facts_of(run).warm_start == [named]


def test_a_run_that_went_on_meanwhile_changes_no_prompt(finished: Run) -> None:
    Problem.objects.filter(slug="layernorm_residual").update(title="Softmax and layer normalisation")
    run = another(finished, problem_version=Problem.objects.get(slug="layernorm_residual").latest())
    Run.objects.filter(pk=finished.pk).update(best_speedup_low=1.5, finished_at=timezone.now())
    assert references(run) == []


# the roofline


def at_roofline(share: float, **cases: float) -> Evaluate:
    """Return a harness that finds every kernel at that share of its ceilings, or single cases at another one."""

    def evaluate(spec: JobSpec, **more: Any) -> JobResult:
        if spec.effort == Effort.CONFIRM:
            return fake_evaluate(spec, **more)
        result = correct_result(spec, 50.0)
        (case,) = result.cases
        named = {"big": share, **cases}
        shown = [changed(case, name=name.replace("_", "x"), roofline_share=one) for name, one in named.items()]
        return changed(result, cases=shown)

    return evaluate


def spent(team: Team, evaluate: Any, **settings: Any) -> int:
    """Return how many of its two evaluations a run takes."""
    run = make_run(team, settings={"confirm": False, **settings}, budget=Budget(evaluations=2))
    return drive(run, evaluate).spent_evaluations


def test_a_run_ends_where_the_best_kernel_reaches_the_roofline(team: Team) -> None:
    run = drive(make_run(team, budget=Budget(evaluations=20)), at_roofline(0.96))
    assert run.state == RunState.FINISHED
    assert run.stop_reason == "The best kernel reaches 96 % of the measured roofline in every case."
    assert run.spent_evaluations == 0
    assert spent(team, at_roofline(0.94)) == 2
    assert spent(team, at_roofline(0.99), stop_at_roofline=0) == 2


def test_a_ceiling_that_is_none_ends_no_run(team: Team) -> None:
    assert spent(team, at_roofline(0.96, other=0.5)) == 2, "one shape may still get faster"
    assert spent(team, at_roofline(0.96, other=1.3)) == 2, "the measured ceiling is not this shape's"
    assert spent(team, at_roofline(0.96, **{"1024_256": 0.97})) == 2, "its data stays in the cache"

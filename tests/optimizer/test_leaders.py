"""Test that the leader at the end is whom the direct comparisons support, in runs that are measured with noise."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
from django.test import Client
from django.utils import timezone

from optimizer.actions.leaders import do_rerank_leaders
from optimizer.actions.notification import do_choose
from optimizer.charts.curve import points_of
from optimizer.job_source import DatabaseJobSource
from optimizer.loop import advance
from optimizer.models import Evaluation, Job, JobState, Notification, NotificationKind, Run, RunState, Team, User
from optimizer.queries.budgets import Budget
from optimizer.queries.headline import show_stated
from optimizer.queries.notifications import Wanted
from optimizer.runs.evidence import evidence_of
from optimizer.runs.history import history_of
from optimizer.search import STRATEGIES
from optimizer.search.base import Draft, Finish, History, Step, Strategy
from runners.job import Effort, Failure, JobResult, JobSpec, Language, Source, Speedup, Status, Verdict
from runners.worker import work_once
from tests.factories import QUEUE, correct_result, drive, make_run, make_user

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
BASELINE_US = 200.0
FLOOR = 1.01


class Family(Strategy):
    """Writes the texts it is told to, each as a child of another one."""

    name: ClassVar[str] = "family"
    title: ClassVar[str] = "Family"
    summary: ClassVar[str] = "For tests."
    kin: ClassVar[list[tuple[str, str | None]]] = []

    def decide(self, history: History) -> list[Step]:
        drafts: list[Step] = []
        for name, parent in self.kin:
            kernel = history.kernel(name)
            if kernel is None and (parent is None or history.kernel(parent) is not None):
                drafts.append(Draft(name, Source(Language.CPP, name), (parent,) if parent else ()))
            if kernel is None or not kernel.finished:
                return drafts
        return [Finish("done")]


@dataclass
class Machine:
    """Imitate a harness that knows each kernel's true time. Comparisons with the baseline are off by a factor that
    depends on the kernel (`luck`) unless they are confirmations; kernels timed in turns are compared as they are."""

    times_us: dict[str, float]
    luck: dict[str, float] = field(default_factory=dict)
    width: float = 1.02
    asked: list[JobSpec] = field(default_factory=list)

    def __call__(self, spec: JobSpec, **_callbacks: Any) -> JobResult:
        self.asked.append(spec)
        name = spec.candidate.text
        if name not in self.times_us:
            return correct_result(spec, BASELINE_US)
        cold = spec.effort == Effort.CONFIRM
        seen = self.times_us[name] / (1.0 if cold else self.luck.get(name, 1.0))
        result = correct_result(spec, seen)
        against = self._against(spec)
        return replace(result, speedup=_speedup(BASELINE_US / seen, self.width), versus_parent=against)

    def _against(self, spec: JobSpec) -> Speedup | None:
        if spec.parent is None or spec.parent.text not in self.times_us:
            return None
        return _speedup(self.times_us[spec.parent.text] / self.times_us[spec.candidate.text], 1.005)


def _speedup(ratio: float, width: float) -> Speedup:
    low, high = ratio / width, ratio * width
    verdict = Verdict.FASTER if low > FLOOR else Verdict.SLOWER if high < 1 / FLOOR else Verdict.SAME
    return Speedup(ratio, low, high, "x", FLOOR, verdict)


def family_run(monkeypatch: pytest.MonkeyPatch, kin: list[tuple[str, str | None]], **more: Any) -> Run:
    monkeypatch.setattr(Family, "kin", kin)
    monkeypatch.setitem(STRATEGIES, Family.name, Family())
    return make_run(strategy=Family.name, **({"budget": Budget(evaluations=50)} | more))


def tile(page: str, title: str) -> str:
    """Return the text of a page's tile without its title."""
    text = " ".join(re.sub("<[^>]+>", " ", page).split())
    return text.split(f"{title} ", 1)[1]


def confirmed(run: Run) -> list[Evaluation]:
    return list(Evaluation.objects.filter(kernel__run=run, effort="confirm").order_by("pk"))


def test_a_kernel_proven_slower_than_its_parent_is_not_the_best_however_lucky_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine({"parent": 100.0, "child": 108.0}, luck={"child": 1.3})
    kin: list[tuple[str, str | None]] = [("parent", None), ("child", "parent")]
    run = drive(family_run(monkeypatch, kin, settings={"confirm": False}), machine)
    child = run.kernels.get(key="child").evaluation
    parent = run.kernels.get(key="parent").evaluation
    assert child.speedup is not None and parent.speedup is not None and child.speedup > parent.speedup
    assert child.parent_verdict == Verdict.SLOWER
    assert run.best_kernel is not None and run.best_kernel.key == "parent"
    assert history_of(run).best().key == "parent"  # type: ignore[union-attr]


@pytest.mark.parametrize("number", [0, 1, *(pytest.param(n, marks=pytest.mark.long) for n in (2, 3))])
def test_no_kernel_slower_than_its_parent_ends_as_the_best(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    rng = random.Random(number)
    names = [f"k{n}" for n in range(7)]
    times = {name: rng.uniform(60.0, 160.0) for name in names}
    luck = {name: rng.uniform(0.8, 1.25) for name in names}
    kin = [(name, rng.choice(names[:n]) if n else None) for n, name in enumerate(names)]
    run = drive(family_run(monkeypatch, kin), Machine(times, luck))
    assert run.state == RunState.FINISHED
    assert run.best_kernel is not None
    parent = dict(kin).get(run.best_kernel.key)
    if parent is not None:
        assert times[run.best_kernel.key] < times[parent] * 1.02


@pytest.mark.parametrize(
    "order", ["abcd", "dcba", *(pytest.param(order, marks=pytest.mark.long) for order in ("cabd", "bdac"))]
)
def test_the_order_of_arrival_does_not_change_the_winner(monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    machine = Machine(
        {"a": 100.0, "b": 101.5, "c": 98.0, "d": 120.0}, luck={"a": 1.04, "b": 1.05, "c": 0.97}, width=1.05
    )
    run = drive(family_run(monkeypatch, [(name, None) for name in order]), machine)
    assert run.best_kernel is not None and run.best_kernel.key == "c", "the truly fastest, though it was unlucky"


def test_the_leaders_are_settled_together_in_cold_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({"a": 100.0, "b": 98.0, "c": 99.0, "far": 150.0}, luck={"a": 1.05}, width=1.06)
    run = drive(family_run(monkeypatch, [(name, None) for name in ("a", "b", "c", "far")]), machine)
    pairs = {(one.kernel.key, one.opponent.key if one.opponent else None) for one in confirmed(run)}
    assert pairs >= {("a", None), ("b", "a"), ("c", "a")}, "each with the leader of the first measurements"
    assert "far" not in {one.kernel.key for one in confirmed(run)}, "its interval does not overlap the leader's"
    assert run.spent_evaluations == 4, "settling costs no evaluations"
    assert run.best_kernel is not None and run.best_kernel.key == "b"
    assert run.best_speedup == pytest.approx(BASELINE_US / 98.0), "the settled figure is the headline"
    note = run.events.get(type="run.note", payload__text__startswith="Settled in cold processes").payload["text"]
    assert f"#{run.best_kernel.number} 2.04×" in note
    client = Client()
    client.force_login(make_user(run.team))
    page = client.get(f"/runs/{run.pk}/kernels/{run.best_kernel.number}/").content.decode()
    assert tile(page, "Against torch eager").startswith("2.04×"), "the kernel's page states the settled figure too"


def test_as_many_are_settled_as_the_setting_says_and_the_jobs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"k{n}" for n in range(12)]
    machine = Machine({name: 100.0 + n / 10 for n, name in enumerate(names)}, width=1.1)
    run = drive(family_run(monkeypatch, [(name, None) for name in names], settings={"settle": 2}), machine)
    assert len({one.kernel_id for one in confirmed(run)}) == 2
    assert len(confirmed(run)) <= 4


def test_without_confirmation_nothing_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    run = family_run(monkeypatch, [("a", None), ("b", None)], settings={"confirm": False})
    assert confirmed(drive(run, Machine({"a": 100.0, "b": 99.0}))) == []


def test_settling_is_asked_for_once_however_often_the_run_is_advanced(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({"a": 100.0, "b": 99.5}, width=1.05)
    run = family_run(monkeypatch, [("a", None), ("b", None)])
    source = DatabaseJobSource()
    while not confirmed(run):
        advance(run.pk)
        while not confirmed(run) and work_once(source, QUEUE, "test-runner", machine):
            pass
    asked = Counter(one.kernel.key for one in confirmed(run))
    for _ in range(3):
        advance(run.pk)
    assert Counter(one.kernel.key for one in confirmed(run)) == asked == {"a": 1, "b": 1}
    drive(run, machine)
    assert len(confirmed(run)) == 2
    assert run.events.filter(type="run.note", payload__text__startswith="Settled").count() == 1


def test_a_worker_that_dies_while_it_settles_costs_nothing_but_time(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({"a": 100.0, "b": 99.5}, width=1.05)
    run = family_run(monkeypatch, [("a", None), ("b", None)])
    died: list[str] = []

    def dying(spec: JobSpec, **callbacks: Any) -> JobResult:
        if spec.effort == Effort.CONFIRM and not died:
            died.append(spec.job_id)
            raise SystemExit
        return machine(spec, **callbacks)

    with pytest.raises(SystemExit):
        drive(run, dying)
    Job.objects.filter(state=JobState.RUNNING).update(lease_until=timezone.now())
    run = drive(run, dying)
    assert died and run.state == RunState.FINISHED
    assert Counter(one.kernel.key for one in confirmed(run)) == {"a": 1, "b": 1}
    assert run.best_kernel is not None and run.best_kernel.key == "b"


def test_a_leader_that_is_confirmed_slower_than_its_parent_steps_down_and_people_hear_of_it(
    monkeypatch: pytest.MonkeyPatch, team: Team, member: User
) -> None:
    truth = {"parent": 100.0, "child": 107.0}
    machine = Machine(truth, luck={"child": 1.3, "parent": 0.9})

    def first_unpaired(spec: JobSpec, **callbacks: Any) -> JobResult:
        """Drop the parent from the first session, as if it could not be timed beside it."""
        result = machine(spec, **callbacks)
        return result if spec.effort == Effort.CONFIRM else replace(result, versus_parent=None)

    monkeypatch.setattr(Family, "kin", [("parent", None), ("child", "parent")])
    monkeypatch.setitem(STRATEGIES, Family.name, Family())
    # News of leaders are off by default: a run may change its leader every few minutes.
    do_choose(member, {NotificationKind.BEST: Wanted(in_app=True, by_mail=False)})
    run = make_run(team, member, strategy=Family.name, budget=Budget(evaluations=9))
    run = drive(run, first_unpaired)
    child = run.kernels.get(key="child")
    assert run.best_kernel is not None and run.best_kernel.key == "parent"
    event = run.events.get(type="best.refuted", payload__led=True).payload
    assert (event["number"], event["by"]) == (child.number, run.best_kernel.number)
    assert "slower than" in event["reason"] and "0.93×" in event["reason"]
    assert Notification.objects.filter(user=member, text__contains="no longer leads").count() == 1


def test_a_copy_of_a_beaten_kernel_does_not_lead_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithCopy(Family):
        def decide(self, history: History) -> list[Step]:
            steps = super().decide(history)
            if not any(isinstance(step, Finish) for step in steps) or history.kernel("again"):
                return steps
            return [Draft("again", Source(Language.CPP, "child"))]

    run = family_run(monkeypatch, [("parent", None), ("child", "parent")])
    monkeypatch.setitem(STRATEGIES, Family.name, WithCopy())
    run = drive(run, Machine({"parent": 100.0, "child": 108.0}, luck={"child": 1.3}))
    copy = run.kernels.get(key="again")
    assert copy.evaluation.copied_from == run.kernels.get(key="child").evaluation
    assert run.best_kernel is not None and run.best_kernel.key == "parent"
    assert history_of(run).best().key == "parent"  # type: ignore[union-attr]
    assert evidence_of(run).beaters(copy.pk) == {run.best_kernel.pk}


def test_a_refuted_kernel_never_ends_as_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({"a": 100.0, "boast": 205.0}, luck={"boast": 4.0})
    run = drive(family_run(monkeypatch, [("a", None), ("boast", None)]), machine)
    assert run.best_kernel is not None and run.best_kernel.key == "a"
    assert run.events.filter(type="best.refuted", payload__number=run.kernels.get(key="boast").number).count() == 1


def test_a_confirmation_that_the_opponents_side_ended_says_nothing_about_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine({"a": 100.0})

    def opponent_fails(spec: JobSpec, **callbacks: Any) -> JobResult:
        if spec.effort != Effort.CONFIRM:
            return machine(spec, **callbacks)
        failure = Failure("baseline", "build", "timed out after 300 s")
        return JobResult(spec.job_id, Status.TIMEOUT, reasons=["no answer"], failures=[failure])

    run = drive(family_run(monkeypatch, [("a", None)]), opponent_fails)
    assert run.state == RunState.FINISHED
    assert run.best_kernel is not None and run.best_kernel.key == "a"
    assert not run.events.filter(type="best.refuted").exists()


def test_the_curve_follows_the_leader_and_not_the_luckiest_point(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({"parent": 100.0, "child": 108.0}, luck={"child": 1.3})
    run = drive(family_run(monkeypatch, [("parent", None), ("child", "parent")]), machine)
    points = points_of(run)
    assert max(point.speedup or 0.0 for point in points) == pytest.approx(BASELINE_US / 108.0 * 1.3)
    assert points[-1].best == pytest.approx(BASELINE_US / 100.0)


def test_a_confirmation_against_another_finalist_is_not_shown_as_one_against_the_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine({"parent": 110.0, "child": 100.0})
    run = drive(family_run(monkeypatch, [("parent", None), ("child", "parent")]), machine)
    shown = {kernel.key: kernel for kernel in show_stated(run, run.kernels.select_related("evaluation"))}
    child = shown["child"]
    assert child.evaluation.effort == Effort.CONFIRM
    assert isinstance(child.against_parent, Evaluation) and child.against_parent.effort != Effort.CONFIRM
    assert child.against_parent.opponent == shown["parent"]
    assert child.against_parent.parent_speedup == pytest.approx(1.1, rel=0.05)


def test_a_run_that_ended_under_older_rules_gives_up_a_leader_that_was_slower_than_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine({"parent": 100.0, "child": 108.0}, luck={"child": 1.3})
    kin: list[tuple[str, str | None]] = [("parent", None), ("child", "parent")]
    run = drive(family_run(monkeypatch, kin, settings={"confirm": False}), machine)
    Run.objects.filter(pk=run.pk).update(best_kernel=run.kernels.get(key="child"))
    assert (do_rerank_leaders(), do_rerank_leaders()) == (1, 0)
    run.refresh_from_db()
    assert run.best_kernel is not None and run.best_kernel.key == "parent"

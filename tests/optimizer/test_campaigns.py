"""Test the step of campaigns: every cell once, even shares, exact limits, settling, and crashes anywhere."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any
from unittest import mock

import pytest
from django.db.models import Count
from django.utils import timezone

from optimizer.actions.campaign import (
    Limits,
    NewConfiguration,
    do_pause_campaign,
    do_resume_campaign,
)
from optimizer.actions.campaign_budget import do_continue_campaign
from optimizer.campaigns import planning, searching, settling
from optimizer.campaigns.advance import advance_campaign
from optimizer.job_source import DatabaseJobSource
from optimizer.models import (
    Campaign,
    CampaignState,
    Evaluation,
    EvaluationPurpose,
    Run,
    Runner,
    RunState,
    Team,
    User,
)
from optimizer.models.campaign import LIMIT_KINDS
from optimizer.models.runner import LOST_AFTER
from optimizer.queries.budgets import Budget
from optimizer.queries.campaign_results import results_of
from optimizer.queries.campaign_spending import settling_device_s, spent_by_configuration
from optimizer.queue import MAX_ATTEMPTS
from optimizer.reports.campaign import markdown_report
from optimizer.runs.evidence import evidence_of
from runners.job import Failure, JobResult, JobSpec, StageResult, Status
from runners.job_source import RunnerCard
from runners.worker import work_once
from tests.campaigns import (
    drive_campaign,
    make_campaign,
    make_finished_campaign,
    make_settling_campaign,
    make_suite,
    step,
    tuned,
)
from tests.factories import (
    QUEUE,
    correct_result,
    failed_result,
    fake_evaluate,
)

pytestmark = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.usefixtures("shipped_problems")]


def test_every_combination_runs_once_and_is_settled_against_every_baseline(team: Team, member: User) -> None:
    campaign = make_campaign(
        team, member, configurations=[tuned("one", 1), tuned("other", 1)], seeds=[0, 1],
        baselines=["torch_eager", "torch_compile"],
    )  # fmt: skip
    drive_campaign(campaign)
    assert campaign.state == CampaignState.FINISHED
    cells = list(campaign.cells.all())
    assert len(cells) == 2 * 2 * 2
    assert all(cell.is_closed for cell in cells)
    assert Run.objects.filter(campaign_cell__campaign=campaign).count() == 8
    assert campaign.timings.count() == 16
    evaluations = [one.evaluation for one in campaign.timings.select_related("evaluation")]
    assert {one.state if one else "none" for one in evaluations} == {"done"}
    timed = campaign.timings.order_by("evaluation__finished_at", "evaluation")
    assert _blocks(list(timed.values_list("cell__problem_version", flat=True))) == 2
    results = results_of(campaign)
    assert results.settled_problems() == 2
    assert {cell.outcome for cell in results.cells} == {"settled"}


def _blocks(order: Sequence[int]) -> int:
    """Count the uninterrupted blocks of equal numbers."""
    return len([n for n, one in enumerate(order) if n == 0 or order[n - 1] != one])


def test_settling_times_the_winners_of_a_problem_together_one_problem_after_the_other(team: Team) -> None:
    campaign = make_settling_campaign(team)
    order: list[int] = []

    def watch(spec: JobSpec, **options: Any) -> JobResult:
        evaluation = Evaluation.objects.get(pk=int(spec.job_id.partition("-")[2]))
        assert evaluation.purpose == EvaluationPurpose.SETTLING
        assert spec.parent is None
        order.append(evaluation.kernel.run.problem_version_id)
        return fake_evaluate(spec, **options)

    drive_campaign(campaign, watch)
    assert _blocks(order) == 2
    assert Counter(order) == Counter(dict.fromkeys(set(order), 2))


def test_settling_changes_neither_the_leader_nor_the_spending_of_a_run(team: Team) -> None:
    campaign = make_settling_campaign(team)
    before = list(Run.objects.order_by("pk").values("best_kernel", "best_speedup", "spent_device_s"))

    def slower(spec: JobSpec, **_: Any) -> JobResult:
        return correct_result(spec, 800.0)

    drive_campaign(campaign, slower)
    assert list(Run.objects.order_by("pk").values("best_kernel", "best_speedup", "spent_device_s")) == before
    assert all(not evidence_of(run).refuted for run in Run.objects.all())
    scores = results_of(campaign).scores("torch_eager")
    assert {float(value) for matrix in scores.values() for value in matrix.ravel()} == {0.25}


def test_only_settled_problems_count_while_a_campaign_runs(team: Team) -> None:
    campaign = make_settling_campaign(team)
    scores = results_of(campaign).scores("torch_eager")
    assert all(math.isnan(value) for matrix in scores.values() for value in matrix.ravel())


def test_a_kernel_that_fails_the_settling_counts_as_none(team: Team) -> None:
    campaign = make_settling_campaign(team)

    def wrong(spec: JobSpec, **_: Any) -> JobResult:
        return failed_result(spec, Status.INCORRECT)

    drive_campaign(campaign, wrong)
    results = results_of(campaign)
    assert {cell.outcome for cell in results.cells} == {"refuted"}
    assert {float(value) for matrix in results.scores("torch_eager").values() for value in matrix.ravel()} == {0.0}


def _losing(campaign: Campaign, times: int, baseline: str = "") -> Callable[..., JobResult]:
    """Let the device be lost for the first `times` jobs of the first cell's winner, beside one baseline or all."""
    kernel = campaign.timings.earliest("cell__order").kernel_id
    left = [times]

    def evaluate(spec: JobSpec, **options: Any) -> JobResult:
        evaluation = Evaluation.objects.get(pk=int(spec.job_id.partition("-")[2]))
        if evaluation.kernel_id == kernel and spec.baseline.value.startswith(baseline) and left[0]:
            left[0] -= 1
            return failed_result(spec, Status.INFRA_ERROR, "the device was lost")
        return fake_evaluate(spec, **options)

    return evaluate


def test_a_problem_is_timed_again_as_a_whole_where_one_timing_gave_no_measurement(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optimizer.queue.RETRY_PAUSE", dt.timedelta(0))
    campaign = make_settling_campaign(team)
    lost = campaign.cells.earliest("order")
    seen: set[tuple[bool, bool]] = set()

    def ended(one: Campaign) -> bool:
        settled = [cell.is_settled for cell in results_of(one).cells if cell.problem == lost.problem_version_id]
        seen.add((one.state_choice.is_terminal, any(settled)))
        return one.state_choice.is_terminal

    drive_campaign(campaign, _losing(campaign, MAX_ATTEMPTS), until=ended)
    assert seen == {(False, False), (True, True)}, "it stays open until it was timed again"
    assert {cell.outcome for cell in results_of(campaign).cells} == {"settled"}
    timings = Evaluation.objects.filter(purpose=EvaluationPurpose.SETTLING)
    assert timings.count() == campaign.timings.count() + 2
    again = campaign.timings.filter(cell__problem_version=lost.problem_version_id)
    assert {one.evaluation.status for one in again if one.evaluation} == {"correct"}
    assert settling_device_s(campaign) == pytest.approx(sum(one.device_s for one in timings))


def test_a_winner_that_could_not_be_measured_twice_counts_for_nobody_and_says_why(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optimizer.queue.RETRY_PAUSE", dt.timedelta(0))
    campaign = make_settling_campaign(team)
    drive_campaign(campaign, _losing(campaign, 2 * MAX_ATTEMPTS))
    results = results_of(campaign)
    (cell,) = (cell for cell in results.cells if cell.outcome != "settled")
    assert (cell.outcome, cell.is_settled) == ("not measured", True)
    assert "the device was lost" in cell.why and cell in results.unresolved()
    assert math.isnan(cell.score("torch_eager"))
    assert results.settled_problems() == 2
    assert "the device was lost" in markdown_report(campaign)


def test_a_side_that_could_not_be_measured_is_named_beside_one_that_was(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optimizer.queue.RETRY_PAUSE", dt.timedelta(0))
    suite = make_suite(["softmax_rows"])
    campaign = make_campaign(team, suite=suite, baselines=["torch_eager", "torch_compile"])
    drive_campaign(campaign, until=lambda one: one.timings.exists())
    drive_campaign(campaign, _losing(campaign, 2 * MAX_ATTEMPTS, "torch_compile"))
    (cell,) = (cell for cell in results_of(campaign).cells if cell.why)
    assert cell.outcome == "settled"
    assert cell.why == "Not measured beside torch_compile: the device was lost"
    assert cell.score("torch_eager") > 0 and math.isnan(cell.score("torch_compile"))


def _workers_of(campaign: Campaign) -> dict[str, set[str]]:
    """Return the workers of the settled timings by problem."""
    found = defaultdict(set)
    for name, worker in campaign.timings.values_list("cell__name", "evaluation__job__worker"):
        found[name].add(worker)
    return found


def _settle_with(campaign: Campaign, workers: Callable[[], Sequence[str]]) -> None:
    """Settle the campaign with workers that take one job each in turn."""
    for _ in range(100):
        advance_campaign(campaign.pk)
        campaign.refresh_from_db()
        if campaign.state_choice.is_terminal:
            return
        for worker in workers():
            DatabaseJobSource().check_in(RunnerCard(worker, "cpu", (QUEUE,)))
            work_once(DatabaseJobSource(), QUEUE, worker, fake_evaluate)
    raise AssertionError(f"the campaign is still {campaign.state}")


def test_all_timings_of_a_problem_come_from_one_worker(team: Team) -> None:
    campaign = make_settling_campaign(team)
    turn = cycle([("host-A", "host-B"), ("host-B", "host-A")])
    _settle_with(campaign, lambda: next(turn))
    workers = _workers_of(campaign)
    assert len(workers) == 2 and all(len(one) == 1 for one in workers.values())
    timings = Evaluation.objects.filter(purpose=EvaluationPurpose.SETTLING)
    assert timings.count() == campaign.timings.count(), "none had to be repeated"


def _make_campaign_to_settle_by_spool(team: Team) -> Campaign:
    """Create a campaign of dispatcher `spool` whose runs have ended and of which nothing is timed yet."""
    campaign = make_settling_campaign(team)
    campaign.timings.update(evaluation=None)
    Evaluation.objects.filter(purpose=EvaluationPurpose.SETTLING).delete()
    Campaign.objects.filter(pk=campaign.pk).update(dispatcher="spool")
    return campaign


def test_all_timings_go_to_a_spool_at_once_in_their_order(team: Team) -> None:
    campaign = _make_campaign_to_settle_by_spool(team)
    advance_campaign(campaign.pk)
    timings = campaign.timings.order_by("order")
    assert None not in timings.values_list("evaluation", flat=True), "one exchange carries all of them"
    jobs = list(timings.values_list("evaluation__job", flat=True))
    assert jobs == sorted(jobs)
    _settle_with(campaign, lambda: ["behind the spool"])
    assert {cell.outcome for cell in results_of(campaign).cells} == {"settled"}


def test_what_several_spools_timed_of_a_problem_is_timed_again_by_one(team: Team) -> None:
    campaign = _make_campaign_to_settle_by_spool(team)
    _settle_with(campaign, lambda: ["one spool", "another"])
    workers = _workers_of(campaign)
    assert len(workers) == 2 and all(len(one) == 1 for one in workers.values())


def test_a_problem_whose_worker_is_lost_on_the_way_is_timed_again_elsewhere(team: Team) -> None:
    campaign = make_settling_campaign(team)
    left = [1]

    def workers() -> Sequence[str]:
        if left[0]:
            left[0] -= 1
            return ("host-A",)
        Runner.objects.filter(name="host-A").update(heartbeat_at=timezone.now() - 2 * LOST_AFTER)
        results = results_of(campaign)
        settled = {cell.name for cell in results.cells if cell.is_settled}
        assert all(len(_workers_of(campaign)[name]) == 1 for name in settled), "nothing mixed counts on the way"
        return ("host-B",)

    _settle_with(campaign, workers)
    assert _workers_of(campaign) == {"softmax_rows": {"host-B"}, "layernorm_residual": {"host-B"}}
    assert {cell.outcome for cell in results_of(campaign).cells} == {"settled"}
    timings = Evaluation.objects.filter(purpose=EvaluationPurpose.SETTLING)
    assert timings.count() == campaign.timings.count() + 2


def test_a_baseline_that_fails_refutes_no_kernel(team: Team) -> None:
    campaign = make_settling_campaign(team)

    def evaluate(spec: JobSpec, **_: Any) -> JobResult:
        said = Failure("baseline", "", "the compiler failed")
        return dataclasses.replace(failed_result(spec, Status.CRASHED), failures=[said])

    drive_campaign(campaign, evaluate)
    results = results_of(campaign)
    assert {cell.outcome for cell in results.cells} == {"not measured"}
    assert all(cell.why for cell in results.cells)
    assert all(math.isnan(cell.score("torch_eager")) for cell in results.cells)


def test_configurations_share_the_device_while_both_have_work(team: Team) -> None:
    """Let one configuration need five times the device time of the other, until a limit ends the campaign."""

    def evaluate(spec: JobSpec, **options: Any) -> JobResult:
        evaluation = Evaluation.objects.get(pk=int(spec.job_id.partition("-")[2]))
        name = evaluation.kernel.run.campaign_cell.configuration.name
        seconds = 5.0 if name == "more" else 1.0
        return dataclasses.replace(fake_evaluate(spec, **options), stages=[StageResult("timing", seconds)])

    configurations = [tuned("more", 3), tuned("less", 3)]
    limits = Limits(device_minutes=0.9)
    campaign = make_campaign(team, configurations=configurations, seeds=list(range(6)), limits=limits)
    drive_campaign(campaign, evaluate, until=lambda one: one.state != CampaignState.RUNNING, rounds=3000)
    assert campaign.cells.filter(run=None, configuration__name="less").exists(), "neither has run out of work"
    shares = [one.device_s for one in spent_by_configuration(campaign).values()]
    dearest = max(run.spent_device_s for run in Run.objects.all())
    # One run at a time: the shares never differ by more than the run that is under way.
    assert max(shares) - min(shares) <= dearest
    assert sum(shares) >= 0.9 * 60


@pytest.mark.parametrize("places", [1, 2, 4])
def test_shares_are_within_five_per_cent_over_many_runs(places: int) -> None:
    """Simulate runs of very different length on one device, which serves jobs by their priority."""
    rng = random.Random(3)
    mean_s = {1: 3.0, 2: 11.0, 3: 40.0}
    waiting = [planning.Candidate(n, n, 1 + n % 3) for n in range(6000)]
    used_s, running = dict.fromkeys(mean_s, 0.0), dict[int, list[float]]()
    spent_s: dict[int, float] = defaultdict(float)
    ended, ended_s = Counter[int](), dict.fromkeys(mean_s, 0.0)
    account = planning.Account({}, {}, dict.fromkeys(LIMIT_KINDS))
    while sum(used_s.values()) < 20_000:
        chosen: Sequence[int] = ()
        # A campaign without a free place does not choose either.
        if len(running) < places:
            active = Counter(1 + cell % 3 for cell in running)
            uses = {one: planning.Use(used_s[one], active[one], ended_s[one], ended[one]) for one in mean_s}
            chosen = planning.choose(waiting, uses, places - len(running), account).cells
            waiting = [one for one in waiting if one.cell not in chosen]
        for cell in chosen:
            running[cell] = [rng.expovariate(1 / mean_s[1 + cell % 3]) for _ in range(4)]
        # The device takes the waiting job with the lowest number, the older run first.
        ranks = planning.priorities(used_s)
        cell = min(running, key=lambda one: (ranks[1 + one % 3], one))
        seconds = running[cell].pop()
        used_s[1 + cell % 3] += seconds
        spent_s[cell] += seconds
        if not running[cell]:
            del running[cell]
            ended[1 + cell % 3] += 1
            ended_s[1 + cell % 3] += spent_s[cell]
    assert max(used_s.values()) / min(used_s.values()) < 1.05


def test_a_configuration_that_is_a_little_behind_does_not_take_every_place() -> None:
    """Count what the runs under way will have used: places become free one after the other, and runs are long."""
    waiting = [planning.Candidate(n, n, n % 2) for n in range(8)]
    account = planning.Account({}, {}, {})
    uses = {0: planning.Use(95.0, 1, 90.0, 9), 1: planning.Use(100.0, 0, 100.0, 10)}
    assert planning.choose(waiting, uses, 3, account).cells == (1, 0, 3)
    first = {0: planning.Use(), 1: planning.Use()}
    assert planning.choose(waiting, first, 4, account).cells == (0, 1, 2, 3), "nothing is known yet"


def test_configurations_that_are_continued_share_the_device_too(team: Team) -> None:
    campaign = make_finished_campaign(team)
    Run.objects.filter(campaign_cell__campaign=campaign).update(spent_device_s=100.0)
    more, less = campaign.configurations.values_list("pk", flat=True)
    Run.objects.filter(campaign_cell__configuration=less).update(spent_device_s=101.0)
    do_continue_campaign(None, campaign, Budget(evaluations=4))
    Campaign.objects.filter(pk=campaign.pk).update(parallel_runs=2)
    advance_campaign(campaign.pk)
    going_on = campaign.cells.filter(is_continuing=False)
    assert list(going_on.values_list("configuration").annotate(Count("pk")).order_by("configuration")) == [
        (more, 1), (less, 1)
    ]  # fmt: skip


def test_a_run_that_still_fits_does_not_wait_behind_one_that_does_not() -> None:
    waiting = [planning.Candidate(1, 1, 0, {"tokens": 50.0}), planning.Candidate(2, 2, 0, {"tokens": 10.0})]
    account = planning.Account({"tokens": 80.0}, {}, {"tokens": 100.0})
    assert planning.choose(waiting, {}, 2, account) == planning.Choice((2,), "tokens")


def test_a_limit_of_zero_dollars_lets_those_start_that_cost_nothing() -> None:
    free, dear = planning.Candidate(1, 1, 0), planning.Candidate(2, 2, 1, {"usd": 1.0})
    account = planning.Account({"usd": 0.0}, {}, {"usd": 0.0})
    assert account.exhausted() is None
    assert planning.choose([free, dear], {}, 2, account) == planning.Choice((1,), "usd")
    assert planning.Account({"usd": 0.01}, {}, {"usd": 0.0}).exhausted() == "usd"


def test_the_order_is_random_by_seed_and_keeps_what_is_compared_together(team: Team) -> None:
    suite = make_suite()
    first, again, other = (
        [
            (c.name, c.seed, c.configuration.name)
            for c in make_campaign(team, suite=suite, seeds=[0, 1], order_seed=seed).cells.all()
        ]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert sorted(first) == sorted(other)
    # Neighbours are the configurations of one problem and seed.
    assert all(first[n][:2] == first[n + 1][:2] for n in range(0, len(first), 2))


def test_a_step_that_is_killed_anywhere_loses_and_doubles_nothing(team: Team) -> None:
    """Make every call to the database layer of the step raise once, at a random place."""
    rng = random.Random(7)
    campaign = make_campaign(team)
    places = [(searching, "do_start_run"), (searching, "_share_device"), (settling, "dispatch_again"),
              (settling, "plan"), (settling, "lock_run")]  # fmt: skip
    for _ in range(400):
        module, name = rng.choice(places)
        dying = mock.patch.object(module, name, side_effect=_dying(getattr(module, name), rng))
        with dying, contextlib.suppress(SystemExit):
            advance_campaign(campaign.pk)
        step(campaign, jobs=2)
        if campaign.state_choice.is_terminal:
            break
    assert campaign.state == CampaignState.FINISHED
    assert Run.objects.filter(team=team).count() == campaign.cells.count() == 4
    timings = Evaluation.objects.filter(purpose=EvaluationPurpose.SETTLING)
    assert timings.count() == campaign.timings.count() == 4


def _dying(real: Callable[..., Any], rng: random.Random) -> Callable[..., Any]:
    def act(*args: Any, **options: Any) -> Any:
        before = rng.random() < 0.5
        if before:
            raise SystemExit
        real(*args, **options)
        raise SystemExit

    return act


def test_the_same_campaign_disturbed_gives_the_same_results(team: Team) -> None:
    calm = make_finished_campaign(team)
    rough = make_campaign(team, suite=calm.suite, parallel_runs=3)
    rng = random.Random(1)
    for _ in range(2000):
        step(rough, jobs=rng.randint(0, 3))
        if rng.random() < 0.1 and rough.state in {CampaignState.RUNNING, CampaignState.SETTLING}:
            do_pause_campaign(None, rough)
            step(rough, jobs=rng.randint(0, 2))
            rough.refresh_from_db()
            do_resume_campaign(None, rough)
        if rough.state_choice.is_terminal:
            break
    assert rough.state == CampaignState.FINISHED
    assert _figures(calm) == _figures(rough)


def _figures(campaign: Campaign) -> dict[Any, Any]:
    results = results_of(campaign)
    names = {one.pk: one.name for one in results.configurations}
    return {
        (cell.name, names[cell.configuration], cell.seed): (cell.evaluations, cell.score("torch_eager"))
        for cell in results.cells
    }


def test_a_limit_is_never_exceeded_by_runs_with_a_budget_of_their_own(team: Team) -> None:
    budgeted = NewConfiguration("a", "tune", {"confirm": False}, {}, Budget(evaluations=1, tokens=300))
    limits = Limits(tokens=1000)
    campaign = make_campaign(team, configurations=[budgeted], seeds=[0, 1], limits=limits, parallel_runs=8)
    step(campaign, jobs=0)
    assert Run.objects.filter(campaign_cell__campaign=campaign).count() == 3
    drive_campaign(campaign)
    # What a run has not used is free for the next.
    assert campaign.cells.filter(is_closed=True).count() == 4


def test_what_a_limit_keeps_from_starting_is_skipped_and_says_so(team: Team) -> None:
    campaign = make_campaign(team, limits=Limits(device_minutes=0.1))
    drive_campaign(campaign)
    skipped = campaign.cells.filter(is_skipped=True)
    assert 0 < skipped.count() < 4
    assert {cell.why for cell in skipped} == {"The campaign's limit of 0.1 device minutes is reached."}
    assert campaign.state == CampaignState.FINISHED


def test_a_problem_that_the_target_cannot_run_is_skipped_by_name_and_the_rest_goes_on(team: Team) -> None:
    suite = make_suite(("softmax_rows", "fp8_block_gemm"), broken=["bad"])
    version = suite.entries.get(name="fp8_block_gemm").problem_version
    assert version is not None
    version.languages = ["hip"]
    version.save()
    campaign = drive_campaign(make_campaign(team, suite=suite))
    skipped = campaign.cells.filter(is_skipped=True)
    assert {cell.name for cell in skipped} == {"fp8_block_gemm"}
    assert "no language" in skipped[0].why
    assert campaign.unusable == [{"name": "bad", "complaint": "no class Model"}]
    assert results_of(campaign).settled_problems() == 1


def test_a_problem_that_does_not_fit_the_device_is_tried_once(team: Team) -> None:
    def evaluate(spec: JobSpec, **options: Any) -> JobResult:
        if spec.problem.name == "layernorm_residual":
            return failed_result(spec, Status.TOO_LARGE)
        return fake_evaluate(spec, **options)

    campaign = make_campaign(team, configurations=[tuned("short", 1)], seeds=[0, 1, 2])
    drive_campaign(campaign, evaluate)
    large = campaign.cells.filter(name="layernorm_residual")
    assert large.filter(is_skipped=True).count() == 2
    tried = large.get(is_closed=True).run
    assert tried is not None and tried.state == RunState.FAILED
    assert campaign.cells.exclude(name="layernorm_residual").filter(is_closed=True).count() == 3


def test_a_configuration_whose_model_answers_nobody_is_halted_and_the_other_goes_on(team: Team) -> None:
    dead = NewConfiguration("dead", "sampling", {}, {"default": {"provider": "inbox"}}, Budget(evaluations=2))
    suite, compared = make_suite(["softmax_rows"]), [tuned("good", 1), dead]
    campaign = make_campaign(team, suite=suite, configurations=compared, seeds=[0, 1, 2, 3])

    for _ in range(400):
        step(campaign)
        for run in Run.objects.filter(strategy="sampling").active():
            run.calls.exclude(state__in=["failed", "answered"]).update(state="failed", error="no route to host")
        if campaign.state_choice.is_terminal:
            break
    assert campaign.state == CampaignState.FINISHED
    halted = campaign.configurations.get(name="dead")
    assert "no route to host" in halted.halted_why
    assert campaign.cells.filter(configuration=halted, is_closed=True).count() == 3
    assert campaign.cells.filter(configuration__name="good", is_closed=True).count() == 4

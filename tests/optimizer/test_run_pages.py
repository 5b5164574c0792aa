"""Test what the pages of runs say: one head, one line of state, one count of evaluations, one order of leaders."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from io import StringIO

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from optimizer.actions import ranking
from optimizer.actions.ranking import do_retime_leaders
from optimizer.actions.run import do_clone_run, do_continue_run, do_pause_run
from optimizer.charts.cost import axes_for, cost
from optimizer.charts.curve import points_of
from optimizer.forms.run_differences import differences_of
from optimizer.models import (
    CallState,
    Evaluation,
    EvaluationPurpose,
    Job,
    LlmCall,
    Run,
    RunState,
    SavedView,
    Team,
    TeamRole,
    User,
)
from optimizer.models.run import RunTransitionError
from optimizer.queries.budgets import Budget
from optimizer.queries.comparison import outcomes_of
from optimizer.queries.cost import RunCost
from optimizer.queries.fulltext import search
from optimizer.queries.headline import headline_evaluation
from optimizer.queries.leaderboard import Leader, leaders_of, ranked
from optimizer.queries.outcomes import count_outcomes
from optimizer.queries.run_status import status_of
from optimizer.queries.run_summary import summarise
from optimizer.queries.run_table import as_json, closing_table
from optimizer.reports.facts import facts_of
from optimizer.reports.markdown import markdown_report
from optimizer.runs.locking import lock_run
from optimizer.search import STRATEGIES
from runners import wire
from runners.job import BuildReport, JobResult, JobSpec, Status
from tests.driven_runs import make_finished_run
from tests.factories import drive, failed_result, fake_evaluate, make_run, make_team, make_user
from tests.optimizer.clients import caller_of, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def team() -> Team:
    """Return a team."""
    return make_team()


@pytest.fixture
def operator(team: Team) -> User:
    """Return an operator of the team."""
    return make_user(team, TeamRole.OPERATOR)


@pytest.fixture
def pages(client: Client, operator: User) -> Client:
    """Return a client that is signed in as the operator."""
    client.force_login(operator)
    return client


def text_of(pages: Client, name: str, *parts: object, query: str = "") -> str:
    """Return a page's text."""
    return pages.get(reverse(name, args=parts) + query).content.decode()


def numbers_differ(team: Team, one: int, other: int) -> bool:
    """Return whether two runs whose seeds are these numbers differ in a setting."""
    return bool(differences_of([make_run(team, seed=one), make_run(team, seed=other)]))


def test_large_numbers_that_differ_in_their_last_digit_are_a_difference(team: Team) -> None:
    assert numbers_differ(team, 1_234_567, 1_234_568)
    assert numbers_differ(team, 2**63 - 1, 2**63 - 2)
    assert not numbers_differ(team, 1_000_000, 1_000_000)


def test_the_top_of_a_board_locks_its_runs_in_one_order(
    team: Team, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [make_finished_run(team) for _ in range(2)]
    for run, speedup in zip(runs, (1.5, 2.5), strict=True):
        Run.objects.filter(pk=run.pk).update(best_speedup_low=speedup, best_speedup_high=speedup)
    board = leaders_of(operator, runs[0].problem_version.problem, runs[0].target)
    assert [one.run for one in board] == [runs[1].pk, runs[0].pk]
    locked: list[int] = []

    def noted(pk: int) -> Run:
        locked.append(pk)
        return lock_run(pk)

    monkeypatch.setattr(ranking, "lock_run", noted)
    do_retime_leaders(operator, board)
    assert locked == sorted(locked) and len(locked) == 2


# leaderboards


def leader(run: int, low: float, high: float) -> Leader:
    """Return a leader with that interval."""
    return Leader(0, run, "", 1, "tune", "cpp", "torch_eager", 1.0, (low + high) / 2, low, high, "ada", 1)


def test_leaders_share_a_rank_while_their_intervals_overlap_and_lower_ones_count_all_above() -> None:
    board = ranked([leader(1, 1.9, 1.95), leader(2, 2.3, 2.4), leader(3, 2.0, 2.35), leader(4, 1.0, 1.1)])
    assert [(one.run, one.rank) for one in board] == [(2, 1), (3, 1), (1, 3), (4, 4)]


def test_a_board_ranks_by_speedup_where_raw_times_of_two_sessions_say_the_opposite(
    team: Team, operator: User
) -> None:
    slow_day, fast_day = make_finished_run(team), make_finished_run(team)
    for run, time_us, speedup in ((slow_day, 90.0, 2.4), (fast_day, 50.0, 1.9)):
        Evaluation.objects.filter(first_of=run.best_kernel).update(time_us=time_us)
        Run.objects.filter(pk=run.pk).update(
            best_speedup=speedup, best_speedup_low=speedup - 0.02, best_speedup_high=speedup + 0.02
        )
    board = leaders_of(operator, slow_day.problem_version.problem, slow_day.target)
    assert [(one.run, one.rank) for one in board] == [(slow_day.pk, 1), (fast_day.pk, 2)]


def test_the_problems_page_and_the_board_order_runs_alike_and_call_a_seed_a_seed(
    pages: Client, team: Team, operator: User
) -> None:
    runs = [make_finished_run(team) for _ in range(3)]
    for run, speedup in zip(runs, (1.5, 2.5, 2.0), strict=True):
        Run.objects.filter(pk=run.pk).update(
            best_speedup=speedup, best_speedup_low=speedup - 0.01, best_speedup_high=speedup + 0.01
        )
    seeded = runs[1]
    Run.objects.filter(pk=seeded.pk).update(best_kernel=seeded.kernels.get(number=0))
    board = text_of(pages, "leaderboard", "softmax_rows", "cpu")
    problem = text_of(pages, "problem_page", "softmax_rows")
    addresses = [reverse("run_page", args=[runs[n].pk]) for n in (1, 2, 0)]
    for page in (board, problem):
        places = [page.index(f'"{address}"') for address in addresses]
        assert places == sorted(places)
        assert '<span class="tag">seed</span>' in page


def test_the_top_of_a_board_is_timed_together_and_then_ranks_by_that(
    pages: Client, team: Team, operator: User
) -> None:
    runs = [make_finished_run(team) for _ in range(2)]
    address = reverse("leaderboard_retime", args=["softmax_rows", "cpu"])
    said = pages.post(address, {"version": 1, "baseline": "torch_eager"}, follow=True).content.decode()
    assert "2 kernels queued." in said
    again = Evaluation.objects.filter(purpose=EvaluationPurpose.RANKING)
    assert again.count() == 2 and Job.objects.filter(evaluation__in=again, state="queued").count() == 2
    assert "being timed already" in pages.post(address, {"version": 1}, follow=True).content.decode()
    again.update(state="done", status="correct", speedup=9.0, speedup_low=8.9, speedup_high=9.1, time_us=3.0)
    board = leaders_of(operator, runs[0].problem_version.problem, runs[0].target)
    assert [(one.rank, one.speedup) for one in board] == [(1, 9.0), (1, 9.0)]
    spent = Run.objects.get(pk=runs[0].pk)
    assert spent.spent_evaluations == runs[0].spent_evaluations and spent.best_speedup == runs[0].best_speedup


def test_a_viewer_cannot_have_a_board_timed_again_and_is_not_offered_it(team: Team, operator: User) -> None:
    run, _ = [make_finished_run(team) for _ in range(2)]
    viewer = make_user(team, TeamRole.VIEWER)
    address = reverse("leaderboard", args=["softmax_rows", "cpu"])
    offered = [b"Re-time the top" in signed_in(user).get(address).content for user in (operator, viewer)]
    assert offered == [True, False]
    board = leaders_of(operator, run.problem_version.problem, run.target)
    with pytest.raises(ValidationError, match="Your role"):
        do_retime_leaders(viewer, board)
    assert not Evaluation.objects.filter(purpose=EvaluationPurpose.RANKING).exists()


# stages and state


def test_starks_planner_is_in_its_own_stage_and_never_in_check(team: Team) -> None:
    run = make_run(team, strategy="stark", providers={"default": {"provider": "inbox"}})
    run.calls.create(key="p1", role="plan", state=CallState.ASKING)
    stages = {stage.label: stage.doing for stage in summarise(run).stages}
    assert list(stages) == ["Plan", "Code", "Debug", "Build", "Check", "Time"]
    assert stages["Plan"] == ("plan: asking",) and stages["Check"] == ()


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_every_role_of_a_strategy_has_a_stage(name: str) -> None:
    strategy = STRATEGIES[name]
    assert set(strategy.roles) <= {role for stage in strategy.stages for role in stage.roles}


def test_a_run_that_waits_for_a_person_says_so_and_links_to_the_question(pages: Client, team: Team) -> None:
    run = make_run(team, strategy="scientist", providers={"default": {"provider": "inbox"}})
    drive(run, rounds=2)
    call = run.calls.create(key="s1", role="selector", state=CallState.WAITING, provider="inbox")
    first = run.calls.filter(state=CallState.WAITING).order_by("pk")[0]
    assert status_of(run).call == first.pk <= call.pk
    page = text_of(pages, "run_page", run.pk)
    assert "Waiting for an answer: a prompt waits in the inbox for the role" in page
    assert reverse("prompt_page", args=[first.pk]) in page


def test_an_ended_run_gives_its_reason_and_a_paused_one_who_paused_it(team: Team, operator: User) -> None:
    ended = make_finished_run(team)
    assert status_of(ended).text == ended.stop_reason != ""
    waiting = make_run(team)
    drive(waiting, rounds=1)
    assert operator.username in status_of(do_pause_run(operator, waiting)).text


def test_actions_are_offered_only_to_those_who_may_use_them(pages: Client, client: Client, team: Team) -> None:
    run = make_run(team)
    drive(run, rounds=1)
    stop = reverse("run_stop", args=[run.pk])
    assert stop in text_of(pages, "run_page", run.pk)
    client.force_login(make_user(team, TeamRole.VIEWER))
    assert stop not in text_of(client, "run_page", run.pk)


@pytest.mark.parametrize(
    ("strategy", "step", "end", "question"),
    [("sampling", "run_stop", "Stop the run<", "Stop this run?"),
     ("external", "run_finish", "Finish the run<", "Finish this run now?")],
)  # fmt: skip
def test_stop_and_finish_ask_before_the_run_ends(
    pages: Client, team: Team, strategy: str, step: str, end: str, question: str
) -> None:
    run = make_run(team, strategy=strategy)
    drive(run, rounds=1)
    page = text_of(pages, "run_page", run.pk)
    before = page[: page.index(end)]
    box = before[before.rindex('class="menu confirm"') :]
    assert "<summary" in box and question in box and reverse(step, args=[run.pk]) in box


def test_every_page_of_a_run_has_its_head_and_marks_its_tab(pages: Client, team: Team) -> None:
    run = replace_title(make_finished_run(team), "Night shift")
    for name in ("run_page", "run_kernels", "hypotheses", "lineage", "tuned", "discussion"):
        page = text_of(pages, name, run.pk)
        assert page.count("<h1>") == 1 and "<h1>Night shift</h1>" in page
        address = reverse(name, args=[run.pk])
        assert f'href="{address}" data-palette aria-current="page"' in page, name


def test_an_ended_run_takes_no_guidance_and_shows_no_empty_boxes(pages: Client, team: Team) -> None:
    run = drive(make_run(team, strategy="scientist", providers={"default": {"provider": "inbox"}}))
    Run.objects.filter(pk=run.pk).update(state=RunState.STOPPED, stop_reason="Stopped by ada.")
    page = text_of(pages, "run_page", run.pk)
    assert "id_guidance_text" not in page and 'id="workers"' not in page and 'id="agents"' not in page


def test_settings_are_a_list_and_neither_json_nor_a_python_dictionary(pages: Client, team: Team) -> None:
    run = make_run(team, settings={"concurrency": 3})
    page = text_of(pages, "run_page", run.pk)
    assert "<dt>concurrency</dt><dd>3</dd>" in page
    settings = page[page.index('class="settings"') :]
    assert "{" not in settings and "&quot;" not in settings and "&#x27;" not in settings


# one definition of evaluations


def mixed(spec: JobSpec, **more: object) -> JobResult:
    """Let one in three searched kernels crash."""
    bad = spec.parent is not None and int(spec.candidate.content_hash[0], 16) % 3 == 0
    return failed_result(spec, Status.CRASHED) if bad else fake_evaluate(spec, **more)


def test_page_api_report_curve_comparison_and_command_line_count_the_same_evaluations(
    pages: Client, team: Team, operator: User
) -> None:
    run = drive(make_run(team, operator, budget=Budget(evaluations=9)), mixed)
    outcomes = count_outcomes(run)
    seeds = run.kernels.filter(author_kind="seed").count()
    assert outcomes.evaluated == run.spent_evaluations == 9 and outcomes.others >= seeds > 0
    assert outcomes.correct + sum(n for _, n in outcomes.failures) == 9

    page = text_of(pages, "run_page", run.pk)
    assert f"{outcomes.correct} <small>of 9 evaluations" in page
    api = json.loads(pages.get(f"/api/v1/runs/{run.pk}").content)
    assert api["spent"]["evaluations"] == 9
    table = markdown_report(facts_of(run)).partition("## ")[0]
    cells = [line.strip("| ").split(" | ", 1) for line in table.splitlines()]
    rows = {cell[0]: cell[1] for cell in cells if len(cell) == 2}
    assert rows["Evaluations"] == "9"
    assert sum(int(n) for name, n in rows.items() if name.startswith("of these")) == 9
    assert points_of(run)[-1].evaluations == 9
    assert outcomes_of([run])[0].evaluated == 9
    assert as_json(run)["evaluations"] == 9
    assert f"{outcomes.correct} of 9 evaluations correct" in closing_table(run)


def test_the_headline_is_the_same_on_page_board_api_report_and_command_line(
    pages: Client, team: Team, operator: User
) -> None:
    run = make_finished_run(team, operator)
    assert run.best_speedup is not None
    headline = f"{run.best_speedup:.2f}×"
    api = json.loads(pages.get(f"/api/v1/runs/{run.pk}").content)
    (first,) = leaders_of(operator, run.problem_version.problem, run.target)
    assert first.speedup == run.best_speedup == api["best_speedup"] == as_json(run)["best"]["speedup"]
    stated = headline_evaluation(run)
    assert stated is not None and stated.effort == "confirm" and stated.speedup == run.best_speedup
    assert facts_of(run).result == stated.as_readable_result()
    assert headline in text_of(pages, "run_page", run.pk) and headline in markdown_report(facts_of(run))
    assert headline in closing_table(run)


def test_the_kernel_page_the_tables_report_and_command_line_state_the_confirmed_figure(
    pages: Client, team: Team, operator: User
) -> None:
    run = make_finished_run(team, operator)
    assert run.best_kernel is not None
    own = run.best_kernel.evaluations.order_by("pk")
    first, confirmed = own[0], own.filter(effort="confirm").get()
    own.filter(pk=confirmed.pk).update(speedup=3.21, speedup_low=3.11, speedup_high=3.31, time_us=7.125)
    own.filter(pk=first.pk).update(speedup=4.56, speedup_low=4.5, speedup_high=4.6)
    Run.objects.filter(pk=run.pk).update(best_speedup=3.21, best_speedup_low=3.11, best_speedup_high=3.31)
    number = run.best_kernel.number
    run = Run.objects.get(pk=run.pk)
    kernel = text_of(pages, "kernel_page", run.pk, number)
    assert "3.21×" in kernel and "4.56×" not in kernel
    assert f'<a href="?evaluation={confirmed.pk}" aria-current="true"' in " ".join(kernel.split())
    for name in ("run_page", "run_kernels"):
        page = text_of(pages, name, run.pk)
        assert "3.21×" in page and "4.56×" not in page
    report = markdown_report(facts_of(run))
    assert "3.21×" in report and "4.56×" not in report
    assert "3.21×" in closing_table(run) and "4.56×" not in closing_table(run)
    assert as_json(run)["best"]["time_us"] == 7.125
    other = Evaluation.objects.filter(kernel__run=run, effort="confirm").exclude(pk=confirmed.pk).first()
    if other is not None:
        Evaluation.objects.filter(pk=other.pk).update(speedup=2.34)
        assert "2.34×" in text_of(pages, "run_kernels", run.pk)
    assert "4.56×" in text_of(pages, "kernel_page", run.pk, number, query=f"?evaluation={first.pk}")


def test_a_confirmation_is_shown_with_the_machine_code_of_the_first_evaluation(
    pages: Client, team: Team, operator: User
) -> None:
    run = make_finished_run(team, operator)
    assert run.best_kernel is not None
    first = run.best_kernel.evaluations.order_by("pk")[0]
    build = wire.to_plain(BuildReport(True, 0.1, cached=False, log="", assembly={"main": "vfmadd231ps"}))
    Evaluation.objects.filter(pk=first.pk).update(result=first.result | {"build": build})
    assert "vfmadd231ps" in text_of(pages, "kernel_page", run.pk, run.best_kernel.number)


# cost against speedup


def test_runs_are_drawn_by_what_they_cost_and_those_of_unknown_cost_are_left_out(
    pages: Client, team: Team, operator: User
) -> None:
    run = make_finished_run(team, operator)
    problem, version = run.problem_version.problem, run.problem_version.number
    hidden = make_finished_run(make_team("others"))
    path = reverse("leaderboard_cost", args=[problem.slug, run.target.key])
    page = text_of(pages, "leaderboard", problem.slug, run.target.key)
    assert f'data-chart="{path}?version={version}&amp;baseline={run.baseline}&amp;axis=' in page
    assert path in text_of(pages, "problem_page", problem.slug)
    (_, own) = json.loads(pages.get(f"{path}?axis=evaluations").content)["data"]
    assert (own["x"], own["y"], own["customdata"]) == ([run.spent_evaluations], [run.best_speedup], [[run.pk]])
    assert hidden.pk not in [row[0] for row in own["customdata"]]
    Run.objects.filter(pk=run.pk).update(spent_tokens=900, spent_usd=0)
    assert json.loads(pages.get(path).content)["data"] == []
    assert json.loads(pages.get(f"{path}?axis=tokens").content)["data"][1]["x"] == [900]
    assert pages.get(f"{path}?axis=weight").status_code == 404


def test_the_frontier_rises_only_where_more_was_reached_for_more() -> None:
    runs = [RunCost(n, f"run {n}", "tune", speedup, speedup - 0.1, speedup + 0.1, usd, 0, 0, 0)
            for n, (usd, speedup) in enumerate([(3.0, 2.0), (1.0, 1.5), (2.0, 1.2), (1.0, 1.1)])]  # fmt: skip
    assert [key for key, _ in axes_for(runs)] == ["usd", "tokens", "device_minutes", "evaluations"]
    assert axes_for([replace(one, usd=0.0, evaluations=4) for one in runs])[0][0] == "evaluations"
    frontier, points = cost(runs, "usd", "torch eager").data
    assert (list(frontier.x), list(frontier.y)) == ([1.0, 3.0], [1.5, 2.0])
    assert points.name == "Tune parameters"


def test_a_report_names_the_strategy_by_its_title_and_an_unknown_one_by_its_name(
    pages: Client, team: Team, operator: User
) -> None:
    run = make_finished_run(team, operator)
    for name, title in (("tune", "Tune parameters"), ("retired", "retired")):
        Run.objects.filter(pk=run.pk).update(strategy=name)
        run.refresh_from_db()
        assert f"| Strategy | {title} |" in markdown_report(facts_of(run))
        html = pages.get(reverse("run_report", args=[run.pk, "html"])).content.decode()
        assert f"strategy {title}, seed" in html


def test_the_curve_of_a_run_has_an_axis_of_tokens(pages: Client, team: Team, operator: User) -> None:
    run = make_finished_run(team, operator)
    assert run.started_at is not None
    for tokens, usd in ((100, None), (50, Decimal("0.25"))):
        LlmCall.objects.create(
            run=run, key=f"call {tokens}", role="writer", provider="p", messages=[], state=CallState.ANSWERED,
            prompt_tokens=tokens, answer_tokens=7, cost_usd=usd, answered_at=run.started_at,
        )  # fmt: skip
    assert {(point.tokens, point.usd) for point in points_of(run)} == {(164, 0.25)}
    assert pages.get(reverse("run_curve", args=[run.pk]) + "?axis=tokens").status_code == 200


# going on


def test_a_run_that_used_up_its_budget_continues_under_a_larger_one(
    pages: Client, team: Team, operator: User
) -> None:
    run = make_finished_run(team, operator, budget=Budget(evaluations=3))
    assert run.state == RunState.FINISHED
    assert "Continue with more budget" in text_of(pages, "run_page", run.pk)
    pages.post(reverse("run_budget", args=[run.pk]), {"budget_evaluations": 5})
    run.refresh_from_db()
    assert run.state == RunState.RUNNING
    run = drive(run)
    assert run.state == RunState.FINISHED and run.spent_evaluations == 5


def test_a_run_is_continued_by_the_api(team: Team, operator: User) -> None:
    run = make_finished_run(team, operator, budget=Budget(evaluations=3))
    api, path = caller_of(operator), f"/runs/{run.pk}/continue"
    assert api("PUT", f"/runs/{run.pk}/budget", {"evaluations": 5}).status_code == 409
    assert api("POST", path, {"evaluations": 3}).status_code == 422
    assert caller_of(make_user(team, TeamRole.REVIEWER))("POST", path, {"evaluations": 5}).status_code == 404
    answer = api("POST", path, {"evaluations": 5})
    assert answer.status_code == 200
    assert (answer.json()["state"], answer.json()["budget"]["evaluations"]) == ("running", 5)
    assert drive(Run.objects.get(pk=run.pk)).spent_evaluations == 5
    assert api("POST", path, {"evaluations": 0}).status_code == 422
    stopped = Run.objects.get(pk=api("POST", f"/runs/{make_run(team, operator).pk}/stop").json()["id"])
    assert api("POST", f"/runs/{stopped.pk}/continue", {"evaluations": 50}).status_code == 409


def test_a_run_is_continued_on_the_command_line(team: Team, operator: User) -> None:
    run = drive(make_run(team, operator, budget=Budget(evaluations=3, minutes=60.0)))
    with pytest.raises(CommandError, match="is used up"):
        call_command("run", "--continue", run.pk)
    out = StringIO()
    call_command("run", "--continue", run.pk, "--evaluations", "5", stdout=out)
    run.refresh_from_db()
    assert out.getvalue() == f"Continued {run} (number {run.pk}).\n"
    assert (run.state, run.budget_evaluations, run.budget_minutes) == (RunState.RUNNING, 5, 60.0)
    with pytest.raises(CommandError, match="was not continued"):
        call_command("run", "--continue", run.pk, "--evaluations", "9")
    with pytest.raises(CommandError, match="There is no run 0"):
        call_command("run", "--continue", "0")


def test_a_run_that_did_not_use_up_its_budget_is_cloned_and_not_continued(team: Team, operator: User) -> None:
    run = make_finished_run(team, operator)
    Run.objects.filter(pk=run.pk).update(ended_by_budget=False)
    run.refresh_from_db()
    with pytest.raises(RunTransitionError, match="clone"):
        do_continue_run(operator, run, Budget(evaluations=200))


# the runs table


def test_equal_settings_are_no_difference_whether_they_were_given_or_left_open(team: Team, operator: User) -> None:
    plain = make_run(team, operator, title="one", budget=Budget(evaluations=4, usd=Decimal("2.50")))
    full = STRATEGIES["tune"].Settings.model_validate({}).model_dump(mode="json")
    spelt = make_run(
        team, operator, title="two", settings=full, budget=Budget(evaluations=4, usd=Decimal("2.5000"))
    )
    plain.refresh_from_db()
    spelt.refresh_from_db()
    assert differences_of([plain, spelt]) == []
    other = make_run(team, operator, settings={"concurrency": 2})
    assert {"concurrency", "budget usd"} == {name for name, _ in differences_of([plain, other])}


def test_the_search_box_finds_runs_by_the_name_of_their_problem_strategy_or_target(
    pages: Client, team: Team
) -> None:
    run = make_run(team, title="Night shift")
    for text in ("softmax_rows", "Row-wise", "tune", "cpu"):
        assert "Night shift" in text_of(pages, "runs", query=f"?q={text}"), text
    assert "Night shift" not in text_of(pages, "runs", query="?q=matmul")
    assert run.title in text_of(pages, "runs", query="?group=problem&q=softmax")


def test_the_palette_offers_the_problem_by_a_word_of_its_name(pages: Client, team: Team, operator: User) -> None:
    make_run(team)
    for word in ("softm", "softmax", "row-wise soft"):
        hits = search(operator, word)["problem"]
        assert reverse("problem_page", args=["softmax_rows"]) in [hit.url for hit in hits], word
    answer = json.loads(pages.get("/api/v1/search?limit=4&q=softmax").content)
    assert answer[0]["kind"] == "problem"


def test_a_nul_in_a_views_name_is_replaced(pages: Client, operator: User) -> None:
    assert pages.post(reverse("view_save"), {"name": "N\x00L", "query": ""}).status_code == 302
    assert SavedView.objects.get(user=operator).name == "N\ufffdL"


def test_a_view_is_kept_under_its_name_and_belongs_to_one_person(pages: Client, team: Team, operator: User) -> None:
    with CaptureQueriesContext(connection) as asked:
        pages.post(reverse("view_save"), {"name": "  Nightly ", "query": "tag=night&page=3&sort=-best&evil=1"})
    # Counted under the person's lock, so that requests at the same time cannot both be the last one allowed.
    told = [query["sql"] for query in asked]
    locked = next(n for n, sql in enumerate(told) if "FOR NO KEY UPDATE" in sql)
    assert locked < next(n for n, sql in enumerate(told) if "COUNT(" in sql and "savedview" in sql)
    view = SavedView.objects.get(user=operator)
    assert (view.name, view.query) == ("Nightly", "tag=night&sort=-best")
    assert f"?{view.query.replace('&', '&amp;')}" in text_of(pages, "runs")
    pages.post(reverse("view_save"), {"name": "Nightly", "query": "tag=day"})
    assert SavedView.objects.get(user=operator).query == "tag=day"
    other = Client()
    other.force_login(make_user(team, TeamRole.OPERATOR))
    other.post(reverse("view_delete", args=[view.pk]))
    assert SavedView.objects.filter(pk=view.pk).exists() and "Nightly" not in text_of(other, "runs")
    pages.post(reverse("view_delete", args=[view.pk]))
    assert not SavedView.objects.exists()


@pytest.mark.parametrize(
    "key", ["problem", "target", "strategy", "duration", "by", "seed", "team", "tags", "notes"]
)
def test_every_column_of_the_runs_table_sorts(pages: Client, team: Team, key: str) -> None:
    make_run(team)
    assert f"?sort={key}&amp;cols={key}" in text_of(pages, "runs", query=f"?cols={key}") or (
        f"cols={key}&amp;sort={key}" in text_of(pages, "runs", query=f"?cols={key}")
    )
    assert pages.get(reverse("runs") + f"?sort=-{key}&cols={key}").status_code == 200


def test_runs_name_themselves_by_strategy_problem_and_target(team: Team, operator: User) -> None:
    run = make_run(team, operator)
    assert run.title == f"Tune parameters · {run.problem_version.problem.title} · {run.target.title}"
    assert do_clone_run(operator, replace_title(run, "Mine")).title == "Mine"


def replace_title(run: Run, title: str) -> Run:
    """Return the run with a title of its own."""
    run.title = title
    run.save(update_fields=["title"])
    return run

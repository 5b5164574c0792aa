"""Test the pages: who sees what, what is escaped, what a form says, and how many queries it takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from optimizer.events.payloads import BestChanged
from optimizer.events.record import record
from optimizer.loop import advance
from optimizer.models import Evaluation, Hypothesis, Kernel, Run, Runner, RunState, Target, Team, TeamRole, User
from optimizer.models.hypothesis import Calibration
from optimizer.queries.budgets import Budget
from optimizer.views import hypotheses
from optimizer.views.feed import REPLAYED
from optimizer.views.glossary import TERMS
from runners.job import Status
from tests.driven_runs import make_finished_run
from tests.factories import drive, failed_result, make_run, make_team, make_user

pytestmark = pytest.mark.django_db

SCRIPT = "<script>alert(1)</script>"


def text_of(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.status_code
    return answer.content.decode()


def pages_of(run: Run) -> list[str]:
    return [
        reverse("run_page", args=[run.pk]),
        reverse("run_live", args=[run.pk]),
        reverse("run_kernels", args=[run.pk]),
        reverse("run_curve", args=[run.pk]),
        reverse("kernel_page", args=[run.pk, 0]),
        reverse("kernel_download", args=[run.pk, 0]),
        reverse("kernel_cases_chart", args=[run.pk, 0]),
        reverse("kernel_samples_chart", args=[run.pk, 0]),
    ]


def start_fields(run: Run, **changes: Any) -> dict[str, Any]:
    fields = {
        "problem": "softmax_rows",
        "target": "cpu",
        "strategy": "tune",
        "team": run.team.slug,
        "baseline": "torch_eager",
        "seed": 7,
        "budget_evaluations": 5,
        "dispatcher": "celery",
        "settings.concurrency": 1,
    }
    return fields | changes


# who sees what


def test_a_member_sees_every_page_of_a_run(pages: Client, finished: Run) -> None:
    for address in pages_of(finished):
        assert pages.get(address).status_code == 200, address


def test_an_outsider_is_told_that_nothing_is_there(client: Client, finished: Run) -> None:
    client.force_login(make_user(make_team()))
    for address in pages_of(finished):
        assert client.get(address).status_code == 404, address


def test_a_stranger_is_sent_to_the_sign_in(client: Client, finished: Run) -> None:
    others = [reverse(name) for name in ("runs", "start_run", "problems", "targets", "runners", "help")]
    for address in [*pages_of(finished), *others]:
        answer = client.get(address)
        assert answer.status_code == 302, address
        assert answer.headers["Location"].startswith("/sign-in/"), address


@pytest.mark.parametrize("verb", ["pause", "resume", "stop"])
def test_a_viewer_cannot_steer_a_run(client: Client, team: Team, verb: str) -> None:
    run = make_run(team)
    client.force_login(make_user(team, TeamRole.VIEWER))
    assert client.post(reverse(f"run_{verb}", args=[run.pk])).status_code == 404
    run.refresh_from_db()
    assert run.state == RunState.PENDING


@pytest.mark.parametrize("name", ["run_pause", "run_resume", "run_stop"])
def test_looking_at_an_address_that_steers_changes_nothing(pages: Client, team: Team, name: str) -> None:
    run = make_run(team)
    assert pages.get(reverse(name, args=[run.pk])).status_code == 405


def test_a_page_of_one_run_does_not_show_kernels_of_another(pages: Client, finished: Run, team: Team) -> None:
    assert pages.get(reverse("kernel_page", args=[make_run(team).pk, 0])).status_code == 404
    other = make_finished_run(team).kernels.get(number=0).evaluation
    address = reverse("kernel_page", args=[finished.pk, 0])
    assert pages.get(f"{address}?evaluation={other.pk}").status_code == 404


def test_an_outsiders_leaderboard_does_not_show_our_runs(client: Client, finished: Run) -> None:
    client.force_login(make_user(make_team()))
    assert f"run {finished.pk}<" not in text_of(client, reverse("problem_page", args=["softmax_rows"]))
    assert reverse("run_page", args=[finished.pk]) not in text_of(client, reverse("target_page", args=["cpu"]))


def test_the_member_does_see_them(pages: Client, finished: Run) -> None:
    assert f"run {finished.pk}<" in text_of(pages, reverse("problem_page", args=["softmax_rows"]))
    assert reverse("run_page", args=[finished.pk]) in text_of(pages, reverse("target_page", args=["cpu"]))


# steering


def test_pause_resume_and_stop(pages: Client, team: Team) -> None:
    run = make_run(team)
    drive(run, rounds=1)
    for verb, state in (("pause", RunState.PAUSED), ("resume", RunState.RUNNING), ("stop", RunState.STOPPING)):
        pages.post(reverse(f"run_{verb}", args=[run.pk]))
        run.refresh_from_db()
        assert run.state == state


def test_the_second_of_two_tabs_that_stop_a_run_is_told_so(pages: Client, finished: Run) -> None:
    answer = pages.post(reverse("run_stop", args=[finished.pk]), follow=True)
    assert answer.status_code == 200
    assert "notice" in answer.content.decode()
    finished.refresh_from_db()
    assert finished.state == RunState.FINISHED


def test_a_post_without_the_forms_token_is_refused(member: User, team: Team) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(member)
    assert strict.post(reverse("run_stop", args=[make_run(team).pk])).status_code == 403


# starting


def test_starting_a_run_leads_to_its_page(pages: Client, finished: Run) -> None:
    answer = pages.post(reverse("start_run"), start_fields(finished, title="Mine"))
    run = Run.objects.latest("pk")
    assert answer.headers["Location"] == reverse("run_page", args=[run.pk])
    assert (run.title, run.seed, run.budget_evaluations, run.settings["concurrency"]) == ("Mine", 7, 5, 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("budget_evaluations", -1),
        ("budget_minutes", -2),
        ("budget_minutes", 0),
        ("budget_usd", -1),
        ("seed", -1),
        ("settings.concurrency", 0),
        ("problem", "no-such-problem"),
        ("team", "not-mine"),
    ],
)
def test_a_fault_is_named_beside_its_field(pages: Client, finished: Run, field: str, value: object) -> None:
    make_team("not-mine")
    before = Run.objects.count()
    answer = pages.post(reverse("start_run"), start_fields(finished, **{field: value}))
    assert Run.objects.count() == before
    box = answer.context["form"][field]
    assert box.errors
    assert f'id="{box.auto_id}_error"' in answer.content.decode()
    assert 'aria-invalid="true"' in str(box)


def test_a_viewer_cannot_start_a_run_in_the_team(client: Client, finished: Run) -> None:
    client.force_login(make_user(finished.team, TeamRole.VIEWER))
    before = Run.objects.count()
    client.post(reverse("start_run"), start_fields(finished))
    assert Run.objects.count() == before


def test_an_address_fills_in_every_field(pages: Client, finished: Run) -> None:
    wanted = {"problem": "matmul_bias_gelu", "strategy": "scientist", "seed": "11", "budget_usd": "2.5",
              "guidance": "Use LDS.", "is_private": "1", "settings.avenues": "4"}  # fmt: skip
    form = pages.get(reverse("start_run"), wanted).context["form"]
    assert {name: str(form[name].value()) for name in wanted} == wanted | {"is_private": "True"}


def test_an_address_with_nonsense_still_shows_the_form(pages: Client, finished: Run) -> None:
    text_of(pages, reverse("start_run") + "?strategy=x&clone=nan&seed=abc&problem=%3Cscript%3E&budget_usd=--")


def test_a_clone_brings_the_settings_of_its_original(pages: Client, finished: Run) -> None:
    Run.objects.filter(pk=finished.pk).update(seed=99, settings={"concurrency": 3}, budget_evaluations=17)
    form = pages.get(reverse("start_run"), {"clone": finished.pk}).context["form"]
    assert [form[name].value() for name in ("seed", "settings.concurrency", "budget_evaluations")] == [99, 3, 17]
    pages.post(f"{reverse('start_run')}?clone={finished.pk}", start_fields(finished))
    assert Run.objects.latest("pk").cloned_from == finished


def test_nobody_clones_a_run_that_is_not_theirs(client: Client, finished: Run) -> None:
    client.force_login(make_user(make_team()))
    assert client.get(reverse("start_run"), {"clone": finished.pk}).status_code == 404


# the table of runs


def test_filters_narrow_the_table(pages: Client, finished: Run, team: Team) -> None:
    waiting = make_run(team, title="Waiting one")
    for query, expected in (
        ("", {finished, waiting}),
        ("state=active", {waiting}),
        ("state=finished", {finished}),
        ("q=waiting", {waiting}),
        ("mine=on", {finished}),
        ("problem=matmul_bias_gelu", set()),
        ("state=nonsense&sort=nonsense&page=nonsense", {finished, waiting}),
    ):
        assert set(pages.get(f"{reverse('runs')}?{query}").context["runs"]) == expected, query


def test_sorting_puts_runs_without_a_value_last(pages: Client, finished: Run, team: Team) -> None:
    waiting = make_run(team)
    for sort in ("best", "-best"):
        assert list(pages.get(f"{reverse('runs')}?sort={sort}").context["runs"]) == [finished, waiting]


def test_columns_come_from_the_address(pages: Client, finished: Run) -> None:
    page = text_of(pages, f"{reverse('runs')}?cols=seed&cols=by")
    assert ">Seed</a>" in page
    assert ">Target</a>" not in page


def test_an_empty_table_says_what_to_do_next(pages: Client) -> None:
    assert "No runs yet" in text_of(pages, reverse("runs"))
    assert "Clear filters" in text_of(pages, reverse("runs") + "?q=zzz")


# live parts


def test_live_parts_hold_what_followed_and_nothing_else(pages: Client, finished: Run) -> None:
    finished.refresh_from_db()
    last = finished.last_seq
    assert last < REPLAYED
    page = text_of(pages, reverse("run_live", args=[finished.pk]) + f"?after={last - 2}")
    assert [f'data-seq="{seq}"' in page for seq in (last - 2, last - 1, last)] == [False, True, True]
    assert f'data-last-seq="{last}"' in page


def test_following_the_last_number_replays_every_event_once(pages: Client, finished: Run) -> None:
    seen: list[int] = []
    for event in finished.events.all():
        event.pk, event.seq = None, event.seq + finished.last_seq
        event.save()
    total = finished.events.count()
    while len(seen) < total:
        after = seen[-1] if seen else 0
        items = pages.get(reverse("run_live", args=[finished.pk]), {"after": after}).context["items"]
        seen += sorted(item.seq for item in items)
    assert seen == list(range(1, total + 1))


@pytest.mark.parametrize("after", ["x", "-1", "9" * 30, "1.5", "²"])
def test_a_malformed_number_is_not_an_address(pages: Client, finished: Run, after: str) -> None:
    assert pages.get(reverse("run_live", args=[finished.pk]), {"after": after}).status_code == 404


def test_the_curve_ends_at_the_best_speedup(pages: Client, finished: Run) -> None:
    finished.refresh_from_db()
    figure = json.loads(pages.get(reverse("run_curve", args=[finished.pk])).content)
    first_evaluations = Evaluation.objects.filter(first_of__run=finished).values_list("speedup", flat=True)
    assert figure["data"][0]["y"][-1] == pytest.approx(max(value for value in first_evaluations if value))
    assert pages.get(reverse("run_curve", args=[finished.pk]), {"axis": "password"}).status_code == 404


def test_the_numbers_of_the_curve_are_a_page_and_a_part_of_one(pages: Client, finished: Run) -> None:
    address = reverse("run_curve_table", args=[finished.pk])
    page, part = (pages.get(address, headers=asked).content.decode() for asked in ({}, {"HX-Request": "true"}))
    assert part in page and "<html" not in part
    assert part.count("<tr>") == 1 + finished.kernels.count()
    assert address in text_of(pages, reverse("run_page", args=[finished.pk]))


def test_an_event_of_an_unknown_type_is_still_shown(pages: Client, finished: Run) -> None:
    finished.events.create(seq=100_000, type="future.thing", payload={"x": SCRIPT})
    assert "future.thing" in text_of(pages, reverse("run_page", args=[finished.pk]))


# runs of every kind


def test_a_run_with_only_failures_has_a_page(pages: Client, team: Team) -> None:
    run = drive(make_run(team), lambda spec, **_: failed_result(spec, Status.CRASHED, "boom"))
    page = text_of(pages, reverse("run_page", args=[run.pk]))
    assert "No correct kernel yet." in page
    figure = json.loads(pages.get(reverse("run_curve", args=[run.pk])).content)
    assert figure["data"][-1]["name"] == "Not accepted"
    assert "boom" in text_of(pages, reverse("kernel_page", args=[run.pk, 0]))


def test_a_run_without_kernels_says_where_to_look(pages: Client, team: Team) -> None:
    page = text_of(pages, reverse("run_page", args=[make_run(team).pk]))
    assert "No kernels yet" in page
    assert reverse("runners") in page


# hostile text


def test_script_in_a_source_title_or_log_stays_text(pages: Client, finished: Run) -> None:
    kernel = finished.kernels.get(number=1)
    result = kernel.evaluation.result | {"reasons": [SCRIPT], "build": _build(f"kernel.cpp:1:1: error: {SCRIPT}")}
    Kernel.objects.filter(pk=kernel.pk).update(source=f"// {SCRIPT}\nint x;", title=SCRIPT, report=SCRIPT)
    Evaluation.objects.filter(pk=kernel.evaluation.pk).update(result=result)
    Run.objects.filter(pk=finished.pk).update(title=SCRIPT, guidance=SCRIPT, stop_reason=SCRIPT)
    for address in [*pages_of(finished)[:3], reverse("kernel_page", args=[finished.pk, 1]), reverse("runs")]:
        assert "<script>alert" not in text_of(pages, address), address


def test_characters_that_reorder_code_are_named(pages: Client, finished: Run) -> None:
    Kernel.objects.filter(run=finished, number=1).update(source="if (a\u202e && b) {}\n")
    page = text_of(pages, reverse("kernel_page", args=[finished.pk, 1]))
    assert "\u202e" not in page
    assert "U+202E RIGHT-TO-LEFT OVERRIDE" in page
    assert "hide or reorder text" in page


def test_errors_stand_at_the_lines_they_are_about(pages: Client, finished: Run) -> None:
    kernel = finished.kernels.get(number=1)
    log = "kernel.cpp:2:5: error: expected ';'\n/usr/include/x.h:1:1: error: not ours\n\x1b[31mred\x1b[0m"
    Kernel.objects.filter(pk=kernel.pk).update(source="int a;\nint b\n")
    Evaluation.objects.filter(pk=kernel.evaluation.pk).update(
        result=kernel.evaluation.result | {"build": _build(log)}
    )
    page = text_of(pages, reverse("kernel_page", args=[finished.pk, 1]))
    assert '<li id="L2" class="has-error">' in page
    assert '<li id="L1" class="has-error">' not in page
    assert "\x1b" not in page


def test_a_download_is_an_attachment_that_nobody_guesses_at(pages: Client, finished: Run) -> None:
    answer = pages.get(reverse("kernel_download", args=[finished.pk, 0]))
    assert answer.headers["Content-Disposition"].startswith("attachment; ")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.content.decode() == finished.kernels.get(number=0).source


def test_a_result_of_another_version_does_not_break_the_page(pages: Client, finished: Run) -> None:
    Evaluation.objects.filter(kernel__run=finished).update(result={"from": "the future"})
    text_of(pages, reverse("kernel_page", args=[finished.pk, 0]))


def _build(log: str) -> dict[str, object]:
    return {"ok": False, "seconds": 0.1, "cached": False, "log": log}


# queries


def test_the_table_of_runs_takes_no_more_queries_for_more_runs(
    pages: Client, team: Team, finished: Run, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(10):
        pages.get(reverse("runs"))
    for _ in range(12):
        make_run(team)
    with django_assert_max_num_queries(10):
        pages.get(reverse("runs"))


def test_the_page_of_a_run_takes_no_more_queries_for_more_kernels(
    pages: Client, team: Team, finished: Run, django_assert_max_num_queries: Any
) -> None:
    longer = drive(make_run(team, budget=Budget(evaluations=12)))
    for run in (finished, longer):
        with django_assert_max_num_queries(24):
            pages.get(reverse("run_page", args=[run.pk]))
        with django_assert_max_num_queries(12):
            pages.get(reverse("run_live", args=[run.pk]))
        # Three of them look for a static build, because these results carry none.
        with django_assert_max_num_queries(19):
            pages.get(reverse("kernel_page", args=[run.pk, 1]))


# signing in


def test_signing_in_and_out(client: Client, member: User) -> None:
    answer = client.post(reverse("sign_in"), {"username": member.username, "password": "correct horse"})
    assert answer.headers["Location"] == "/"
    client.post(reverse("sign_out"))
    assert client.get(reverse("runs")).status_code == 302


def test_guessing_passwords_is_slowed_down(client: Client, member: User) -> None:
    for _ in range(5):
        client.post(reverse("sign_in"), {"username": member.username, "password": "wrong"})
    answer = client.post(reverse("sign_in"), {"username": member.username, "password": "correct horse"})
    assert answer.status_code == 200
    assert "Too many failed attempts" in answer.content.decode()


def test_one_account_under_attack_does_not_lock_out_another(client: Client, member: User, team: Team) -> None:
    for _ in range(5):
        client.post(reverse("sign_in"), {"username": "somebody", "password": "wrong"})
    answer = client.post(reverse("sign_in"), {"username": member.username, "password": "correct horse"})
    assert answer.status_code == 302


def test_signing_in_does_not_lead_to_another_site(client: Client, member: User) -> None:
    fields = {"username": member.username, "password": "correct horse", "next": "https://evil.example/"}
    assert client.post(reverse("sign_in"), fields).headers["Location"] == "/"


@pytest.mark.parametrize("wanted", ["https://evil.example/", "//evil.example/", "javascript:alert(1)", ""])
def test_choosing_an_appearance_does_not_lead_to_another_site(client: Client, wanted: str) -> None:
    answer = client.post(reverse("set_theme"), {"theme": "dark", "next": wanted})
    assert answer.headers["Location"] == "/"
    assert 'data-theme="dark"' in client.get(reverse("sign_in")).content.decode()


def test_an_unknown_appearance_is_ignored(client: Client) -> None:
    client.cookies["theme"] = '"><script>'
    assert 'data-theme="system"' in client.get(reverse("sign_in")).content.decode()


# runners


def test_only_administrators_drain_a_runner(client: Client, member: User, finished: Run) -> None:
    runner = Runner.objects.create(name="r", target=Target.objects.get(key="cpu"), heartbeat_at=timezone.now())
    address = reverse("runner_drain", args=[runner.pk])
    client.force_login(member)
    assert client.post(address).status_code == 404
    client.force_login(User.objects.create_superuser("root", password="correct horse"))
    client.post(address, {"note": "new driver"})
    runner.refresh_from_db()
    assert (runner.draining, runner.drain_note) == (True, "root: new driver")
    client.post(address, {"drain": "off"})
    runner.refresh_from_db()
    assert not runner.draining


def test_a_queue_that_nobody_serves_is_said_to_be_so(pages: Client, team: Team) -> None:
    advance(make_run(team).pk)
    said = text_of(pages, reverse("runners"))
    queue = said[said.index("bench.cpu") :]
    assert "No runner" in queue[: queue.index("</tr>")]


# comparing, hypotheses, budgets


def test_only_settings_that_differ_are_compared(pages: Client, finished: Run, team: Team) -> None:
    other = make_run(team, seed=5, budget=Budget(evaluations=4))
    asked: list[str | int] = [finished.pk, other.pk, finished.pk, "x"]
    answer = pages.get(reverse("compare"), {"run": asked})
    assert [run.pk for run in answer.context["runs"]] == [finished.pk, other.pk]
    assert answer.context["differences"] == [("seed", [0, 5])]
    figure = json.loads(pages.get(reverse("compare_curves"), {"run": [finished.pk, other.pk]}).content)
    assert [len(trace["x"]) > 0 for trace in figure["data"]] == [True, False]


def test_runs_of_others_are_not_compared(client: Client, finished: Run) -> None:
    client.force_login(make_user(make_team()))
    assert client.get(reverse("compare"), {"run": finished.pk}).context["runs"] == []


def test_the_board_sets_predictions_against_measurements(pages: Client, finished: Run) -> None:
    make = finished.hypotheses.create
    make(key="a", kind="experiment", title=SCRIPT, predicted_min=10, predicted_max=30, measured_gain=20)
    make(key="b", kind="experiment", title="b", predicted_min=10, predicted_max=30, measured_gain=-4)
    make(key="c", kind="avenue", title="never tried", predicted_min=1, predicted_max=2)
    answer = pages.get(reverse("hypotheses", args=[finished.pk]))
    assert "<script>alert" not in answer.content.decode()
    [calibration] = answer.context["calibrations"]
    assert (calibration.measured, calibration.within, calibration.bias) == (2, 1, 12.0)
    figure = json.loads(pages.get(reverse("hypotheses_chart", args=[finished.pk])).content)
    assert figure["data"][1]["x"] == [20, -4]


def test_calibration_is_told_by_role_and_model(finished: Run) -> None:
    calls = {role: finished.calls.create(key=role, role=role, model="m") for role in ("design", "plan")}
    for key, role, low, high, gained in (
        ("a", "plan", 0, 10, 5),
        ("b", "plan", 20, 40, 10),
        ("c", "design", 5, 5, 6),
    ):
        finished.hypotheses.create(
            key=key, kind="experiment", title=key, call=calls[role],
            predicted_min=low, predicted_max=high, measured_gain=gained,
        )  # fmt: skip
    assert Hypothesis.objects.filter(run=finished).calibrations() == [
        Calibration("design", "m", measured=1, within=0, bias=-1.0),
        Calibration("plan", "m", measured=2, within=1, bias=10.0),
    ]


def test_an_answer_handed_in_from_outside_is_calibrated_under_the_model_that_wrote_it(finished: Run) -> None:
    call = finished.calls.create(key="p", role="plan", provider="inbox", transport={"served_by": "outside-1"})
    finished.hypotheses.create(
        key="a", kind="instruction", title="a", call=call, predicted_min=0, predicted_max=10, measured_gain=5
    )
    [calibration] = Hypothesis.objects.filter(run=finished).calibrations()
    assert calibration == Calibration("plan", call.model_name, measured=1, within=1, bias=0.0)
    assert call.model_name == "outside-1"


def test_the_hypotheses_of_a_long_run_are_on_several_pages_and_a_round_leads_to_its_own(
    pages: Client, finished: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hypotheses, "PER_PAGE", 2)
    for n in range(8):
        finished.hypotheses.create(key=f"h{n}", round=1 + n // 2, kind="experiment", title=f"Idea {n}", chosen=True)
    address = reverse("hypotheses", args=[finished.pk])
    first = text_of(pages, address)
    assert "Idea 6" in first and "Idea 5" not in first and "Page 1 of 4" in first
    assert "Idea 0" in text_of(pages, f"{address}?page=4")
    assert "Idea 2" in text_of(pages, f"{address}?round=2") and "Idea 4" not in text_of(pages, f"{address}?round=2")
    assert "Idea 6" in text_of(pages, f"{address}?round=99")


def test_a_run_without_hypotheses_says_how_to_get_some(pages: Client, finished: Run) -> None:
    assert "Hypotheses are written by agents." in text_of(pages, reverse("hypotheses", args=[finished.pk]))


def test_limits_are_raised_on_a_live_run_and_an_ended_one_needs_more_than_it_spent(
    pages: Client, finished: Run, team: Team
) -> None:
    run = make_run(team)
    pages.post(reverse("run_budget", args=[run.pk]), {"budget_evaluations": 50})
    run.refresh_from_db()
    assert run.budget_evaluations == 50
    answer = pages.post(reverse("run_budget", args=[run.pk]), {"budget_evaluations": -1})
    assert answer.context["form"]["budget_evaluations"].errors
    answer = pages.post(reverse("run_budget", args=[finished.pk]), {"budget_evaluations": 1})
    assert "is used up. Raise it to continue." in answer.context["form"].non_field_errors()[0]


# the glossary


def test_every_term_is_explained_once_with_a_source(pages: Client) -> None:
    page = text_of(pages, reverse("help"))
    slugs = [term.slug for term in TERMS]
    assert len(set(slugs)) == len(slugs)
    for term in TERMS:
        assert f'id="{term.slug}"' in page and term.source, term
    assert {"roofline", "occupancy", "fast-p", "mfma", "lds", "wavefront", "aa-band", "abba"} <= set(slugs)


@pytest.mark.parametrize(
    ("low", "high", "announce", "told"),
    [
        (0.5, 4.94, False, "leads at 1.03× (0.50–4.94), not shown to be faster than the baseline"),
        (1.02, 1.05, True, "leads at 1.03× (1.02–1.05)"),
    ],
)
def test_a_leader_whose_interval_spans_one_is_not_announced_as_faster(
    pages: Client, run: Run, low: float, high: float, announce: bool, told: str
) -> None:
    kernel = run.kernels.create(number=0, key="seed.reference", language="python", source="x", content_hash="x")
    figures = {"speedup": 1.03, "speedup_low": low, "speedup_high": high, "time_us": 10.0}
    record(run, BestChanged(number=0, kernel=kernel.pk, confirmed=False, announce=announce, **figures))
    feed = text_of(pages, reverse("run_page", args=[run.pk]))
    assert told in feed
    assert ("not shown to be faster" in feed) is not announce

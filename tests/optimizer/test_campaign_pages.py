"""Test what people and scripts see of campaigns: pages, form, API, reports, command."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.utils.html import strip_tags

from optimizer.actions.suite import NewEntry, NewSuite, do_store_suite
from optimizer.models import (
    Campaign,
    CampaignConfiguration,
    CampaignState,
    IdempotencyKey,
    Problem,
    Run,
    Suite,
    Team,
    User,
)
from optimizer.problems.suites import EmptySuiteError, Reading, read_suite
from optimizer.queries import campaign_overview
from optimizer.queries.campaign_results import results_of
from optimizer.queries.suites import Subset, UnknownNameError, chosen
from optimizer.reports import benchmark_forms
from optimizer.reports import campaign as reports
from optimizer.search import STRATEGIES
from optimizer.search.ablations import SETS
from optimizer.views import campaigns as views
from runners.job import JobResult, JobSpec, Language, Status
from tests.campaigns import PROBLEMS, drive_campaign, make_campaign, make_suite, tuned
from tests.factories import failed_result, fake_evaluate, make_team, make_user, store_problems_and_targets
from tests.optimizer.clients import Call, flowing

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module", autouse=True)
def problems(module_rows: None) -> None:
    """Store the shipped problems once for the module: they take longer than most tests."""
    store_problems_and_targets()


MODEL = '''"""A problem in KernelBench's form, written for this test."""
import torch

N = 64


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.rand(N, N)]


def get_init_inputs():
    return []
'''


@pytest.fixture
def level(tmp_path: Path) -> Path:
    """Return a checkout with a level of two problems, one of which is broken."""
    folder = tmp_path / "Bench" / "level1"
    folder.mkdir(parents=True)
    (folder / "1_Relu.py").write_text(MODEL)
    (folder / "2_Broken.py").write_text("def get_inputs(): return []\n")
    (folder / "__init__.py").write_text("")
    (tmp_path / "LICENSE").write_text("\n  MIT License\n\nCopyright (c) somebody\n")
    return folder


@pytest.fixture(scope="module")
def done_campaign(problems: None) -> Campaign:
    """Make the rows of `done` once for the module. Tests ask for `done`."""
    suite = make_suite(broken=["level1/9_Gone"])
    for number, entry in enumerate(suite.entries.filter(problem_version__isnull=False), 1):
        entry.name = f"level1/{number}_{entry.name}"
        entry.save()
    hostile = [tuned("<b>more</b>"), tuned("=1+1", 2)]
    team = make_team()
    campaign = make_campaign(
        team, make_user(team), suite=suite, configurations=hostile, seeds=[3], title="<script>x</script>"
    )
    return drive_campaign(campaign)


@pytest.fixture
def done(done_campaign: Campaign) -> Campaign:
    """Return a settled campaign of KernelBench-like names, two configurations and one seed."""
    return Campaign.objects.get(pk=done_campaign.pk)


@pytest.fixture
def reader(client: Client, done: Campaign) -> Client:
    """Return the browser of whoever started `done`."""
    assert done.created_by is not None
    client.force_login(done.created_by)
    return client


def test_a_suite_names_what_it_cannot_use_and_notes_the_licence(level: Path) -> None:
    suite, is_new = read_suite(str(level), Reading(trace=False))
    assert is_new
    assert [(entry.name, bool(entry.complaint)) for entry in suite.entries.all()] == [
        ("level1/1_Relu", False),
        ("level1/2_Broken", True),
    ]
    assert suite.licence == "MIT License"
    assert suite.slug == "bench-level1"


def test_reading_a_suite_again_changes_nothing_until_a_problem_changes(level: Path) -> None:
    first, _ = read_suite(str(level), Reading(trace=False))
    again, is_new = read_suite(str(level), Reading(trace=False))
    assert (again, is_new) == (first, False)
    (level / "1_Relu.py").write_text(MODEL.replace("N = 64", "N = 128"))
    changed, is_new = read_suite(str(level), Reading(trace=False))
    assert (changed.number, is_new) == (2, True)


def test_a_path_without_problems_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmptySuiteError):
        read_suite(str(tmp_path), Reading())
    with pytest.raises(EmptySuiteError):
        read_suite(str(tmp_path / "nowhere"), Reading())


@pytest.mark.processes
def test_tracing_tells_the_footprint_by_which_large_problems_are_left_out_by_name(level: Path) -> None:
    (level / "3_Small.py").write_text(MODEL.replace("N = 64", "N = 8"))
    told: list[NewEntry] = []
    small, _ = read_suite(str(level), Reading(most_bytes=1000), slug="small", tell=told.append)
    (usable,) = small.entries.filter(problem_version__isnull=False)
    # One matrix read and one written, of 8 × 8 numbers of four bytes.
    assert (usable.name, usable.footprint_bytes) == ("level1/3_Small", 2 * 8 * 8 * 4)
    # What is left out is named as a problem that cannot be read is, with its footprint.
    large = small.entries.get(name="level1/1_Relu")
    assert large.complaint == "left out: one call touches 3.05e-05 GiB, above the limit of 9.31e-07"
    assert large.footprint_bytes == 2 * 64 * 64 * 4
    assert large.complaint in [entry.complaint for entry in told]


def test_a_draw_depends_on_names_and_seed_alone() -> None:
    version = make_suite().entries.all()[0].problem_version
    entries = [NewEntry(f"level1/{n}_p", version if n % 5 else None, "" if n % 5 else "broken") for n in range(40)]
    one, _ = do_store_suite(NewSuite("a", "A", "", "", "", entries))
    other, _ = do_store_suite(NewSuite("b", "B", "", "", "", entries[::-1]))
    drawn = [{entry.name for entry in chosen(suite, Subset(count=8, seed=3))} for suite in (one, other)]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 8
    assert drawn[0] != {entry.name for entry in chosen(one, Subset(count=8, seed=4))}
    assert {entry.name for entry in chosen(one, Subset(names=("*/1?_P",)))} == {
        f"level1/{n}_p" for n in range(10, 20)
    }
    with pytest.raises(UnknownNameError):
        chosen(one, Subset(names=("level2/*",)))


def test_ready_sets_name_strategies_and_settings_that_exist() -> None:
    for one in SETS.values():
        names = [arm.name for arm in one.arms]
        assert len(set(names)) == len(names) > 1
        settings = [STRATEGIES[arm.strategy].Settings.model_validate(dict(arm.settings)) for arm in one.arms]
        # Two arms that mean the same would compare a thing with itself.
        assert len(
            {(arm.strategy, each.model_dump_json()) for arm, each in zip(one.arms, settings, strict=True)}
        ) == (len(names))


def test_pages_and_reports_escape_everything_and_name_every_problem(reader: Client, done: Campaign) -> None:
    page = f"/campaigns/{done.pk}/"
    for address in ("/campaigns/", page, f"{page}runs/", f"{page}report.html"):
        text = reader.get(address).content.decode()
        assert "<script>x" not in text
        assert "<b>more</b>" not in text
    assert "level1/9_Gone" in reader.get(page).content.decode()
    assert "no class Model" in reader.get(f"{page}report.md").content.decode().replace("\\", "")
    for kind in ("fast", "bands"):
        assert reader.get(f"{page}chart/{kind}/").json()["data"]
    assert reader.get(f"{page}chart/nothing/").status_code == 404
    assert reader.get(f"{page}report.exe").status_code == 404


def test_an_ended_campaign_is_computed_once_and_its_page_stays_the_same(
    reader: Client, done: Campaign, django_assert_max_num_queries: Any
) -> None:
    address = f"/campaigns/{done.pk}/"
    first = reader.get(address).content.decode()
    with django_assert_max_num_queries(14):
        again = reader.get(address).content.decode()
    assert _without_tokens(again) == _without_tokens(first)


def test_a_page_of_runs_reads_its_problems_alone_and_charts_of_an_ended_campaign_are_computed_once(
    reader: Client, done: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "PER_PAGE", 1)
    whole = results_of(done)
    first = reader.get(f"/campaigns/{done.pk}/runs/").context
    assert [name for name, _ in first["rows"]] == [whole.problems[0][1]]
    assert {cell.problem for cell in first["results"].cells} == {whole.problems[0][0]}
    assert [cell for cell in whole.cells if cell.problem == whole.problems[0][0]] == first["results"].cells
    charts = [f"/campaigns/{done.pk}/chart/{name}" for name in ("fast/", "bands/", "bands/?axis=tokens")]
    before = [reader.get(chart).content for chart in charts]
    monkeypatch.setattr(campaign_overview, "results_of", lambda campaign: pytest.fail("read again"))
    assert [reader.get(chart).content for chart in charts] == before


def test_a_live_campaign_is_read_anew_for_every_page(client: Client, team: Team, member: User) -> None:
    client.force_login(member)
    campaign = make_campaign(team, member, configurations=[tuned("a", 1), tuned("b", 1)], seeds=[3])
    address = f"/campaigns/{campaign.pk}/"
    assert "0 of 4" in flowing(strip_tags(client.get(address).content.decode()))
    drive_campaign(campaign)
    assert "4 of 4" in flowing(strip_tags(client.get(address).content.decode()))


def _without_tokens(text: str) -> str:
    return re.sub(r'(nonce|value|X-CSRFToken)"?[=:] ?"[A-Za-z0-9+/_=-]{16,}"', "", text)


def test_charts_of_a_campaign_say_why_they_are_empty_where_their_script_reads_it(
    client: Client, team: Team, member: User
) -> None:
    campaign = make_campaign(team, member, suite=make_suite(["softmax_rows"]))
    client.force_login(member)
    page = client.get(f"/campaigns/{campaign.pk}/").content.decode()
    plots = re.findall(r'<div class="chart-plot"[^>]*>', page)
    assert len(plots) == 2 and all("data-empty=" in plot for plot in plots)


def test_csv_has_one_line_for_each_run_and_no_formula(done: Campaign) -> None:
    rows = list(csv.DictReader(io.StringIO(reports.csv_report(done))))
    assert len(rows) == done.cells.count() == 4
    assert {row["outcome"] for row in rows} == {"settled"}
    assert [row["configuration"] for row in rows].count("<b>more</b>") == 2
    # A name that begins as a formula is led by an apostrophe, as in every cell.
    assert [row["configuration"] for row in rows].count("'=1+1") == 2
    assert not any(value.startswith("=") for row in rows for value in row.values())


def test_json_says_what_the_page_says(done: Campaign) -> None:
    data = json.loads(reports.json_report(done))
    (against,) = data["baselines"].values()
    assert [one["name"] for one in against["configurations"]] == ["<b>more</b>", "=1+1"]
    assert against["configurations"][0]["success"]["value"] == 1.0
    assert against["comparisons"][0]["words"] == "No difference shown."
    assert data["unusable"] == [{"name": "level1/9_Gone", "complaint": "no class Model"}]
    named = {one["name"] for one in data["configurations"]}
    assert {row["configuration"] for row in data["runs"]} == named


def test_markdown_and_html_show_every_threshold_the_bands_and_what_was_spent(done: Campaign) -> None:
    suite = done.suite
    Suite.objects.filter(pk=suite.pk).update(origin="/data/Bench", version="abc123")
    CampaignConfiguration.objects.filter(campaign=done, position=0).update(budget={"evaluations": 3, "usd": "1.50"})
    Campaign.objects.filter(pk=done.pk).update(limit_usd=7)
    done = Campaign.objects.get(pk=done.pk)
    texts = [
        reports.markdown_report(done).replace("\\", "").replace("|", " "),
        unescape(strip_tags(reports.html_report(done))),
    ]
    for text in map(flowing, texts):
        assert all(f"fast_{threshold:g} 100 % (34–100)" in text for threshold in (0.0, 0.5, 0.8, 1.0))
        assert "Problems: Apache License 2.0, read from /data/Bench abc123." in text
        assert re.search(r"p = 0\.\d{3} after Holm's correction", text)
        assert re.search(r"Best so far .* 1 1\.89× \(1\.89–1\.89\)", text)
        assert "3 evaluations, 1.5 dollars 2 of 2 6" in text
        assert "All runs 7 dollars together 4 of 4 10" in text


def test_json_holds_the_best_so_far_by_each_kind_of_spending(done: Campaign) -> None:
    bands = json.loads(reports.json_report(done))["best_so_far"]
    assert {"evaluations", "device_s"} <= bands.keys() <= {"evaluations", "tokens", "usd", "device_s"}
    band = bands["evaluations"]["<b>more</b>"]
    assert band["at"] == [0, 1, 2, 3]
    assert band["middle"] == band["low"] == band["high"]  # one seed
    assert band["middle"] == sorted(band["middle"])


def test_the_runs_of_an_ended_campaign_are_read_once_for_json(
    done: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = json.loads(reports.json_report(done))
    assert len(first["runs"]) == done.cells.count() == 4
    monkeypatch.setattr(reports, "results_of", lambda campaign: pytest.fail("read again"))
    again = json.loads(reports.json_report(done))
    assert again | {"reported_at": ""} == first | {"reported_at": ""}


def test_kernelbench_results_have_the_fields_that_its_analysis_reads(done: Campaign) -> None:
    files = json.loads(benchmark_forms.kernelbench_report(done))["files"]
    results = files["runs/b_more_b-level1/eval_results.json"]
    assert sorted(results) == ["1", "2"]
    (sample,) = results["1"]
    assert sample["sample_id"] == 0
    assert sample["compiled"] is sample["correctness"] is True
    timing = files["results/timing/cpu/torch_eager.json"]["level1"]
    name = next(name for name in timing if name.startswith("1_"))
    # fast_p there divides these two: it must give our speedup back.
    cell = done.cells.get(name__startswith="level1/1_", configuration__position=0)
    evaluation = cell.timings.get().evaluation
    assert evaluation is not None
    assert timing[name]["mean"] / sample["runtime"] == pytest.approx(evaluation.speedup, rel=1e-6)


def test_kernelbench_baselines_hold_a_problem_that_nobody_solved_in_the_order_of_the_numbers(team: Team) -> None:
    suite = make_suite()
    for entry, name in zip(suite.entries.all(), ("level1/10_Solved", "level1/9_Failed"), strict=True):
        entry.name = name
        entry.save()

    def evaluate(spec: JobSpec, **options: Any) -> JobResult:
        # Only the reference passes on the second problem.
        fails = spec.problem.name == PROBLEMS[1] and spec.candidate.language != Language.PYTHON
        return failed_result(spec, Status.INCORRECT) if fails else fake_evaluate(spec, **options)

    campaign = make_campaign(team, suite=suite, seeds=[3], baselines=["torch_eager", "torch_compile"])
    drive_campaign(campaign, evaluate)
    report = json.loads(benchmark_forms.kernelbench_report(campaign))
    results, timing = report["files"]["runs/more-level1/eval_results.json"], report["files"]
    assert [(number, samples[0]["correctness"]) for number, samples in results.items()] == [
        ("9", False),
        ("10", True),
    ]
    eager = timing["results/timing/cpu/torch_eager.json"]["level1"]
    assert list(eager) == ["9_Failed.py", "10_Solved.py"]
    # What the reference was timed beside.
    assert eager["9_Failed.py"]["mean"] == pytest.approx(0.2)
    # Runs search against the first baseline alone, so nothing was timed beside the second one.
    assert list(timing["results/timing/cpu/torch_compile.json"]["level1"]) == ["10_Solved.py"]
    assert report["without_baseline"] == {"torch_compile": ["level1/9_Failed"]}


def test_kernelbench_com_board_counts_valid_passes_and_the_seconds_of_the_runs(done: Campaign) -> None:
    Run.objects.filter(campaign_cell__campaign=done).update(active_s=90.4, spent_device_s=7)
    board = json.loads(benchmark_forms.kernelbench_com_report(done))
    assert board["schema_version"] == 2
    assert [model["valid_pass_count"] for model in board["models"]] == [2, 2]
    entries = [entry for model in board["models"] for entry in model["results"].values()]
    assert {entry["elapsed_seconds"] for entry in entries} == {90}


def test_the_form_starts_a_campaign_and_refuses_nonsense(pages: Client, team: Team) -> None:
    suite, before = make_suite(), Campaign.objects.count()
    row = {"c-0-name": "a", "c-0-strategy": "tune", "c-0-evaluations": "2", "c-0-settings": "sampler=random"}
    frame = {"c-TOTAL_FORMS": "2", "c-INITIAL_FORMS": "0", "c-1-strategy": "tune", "c-1-evaluations": "30"}
    sent = {"team": team.slug, "suite": suite.pk, "draw_seed": 0, "target": "cpu", "dispatcher": "celery",
            "objective": "device", "baselines": ["torch_eager"], "seeds": "0, 2-3", "parallel_runs": 2,
            "order_seed": 0, **row, **frame}  # fmt: skip
    assert pages.post("/campaigns/new/", sent).status_code == 302
    campaign = Campaign.objects.latest("pk")
    assert campaign.cells.count() == 6
    nonsense: list[dict[str, object]] = [
        {"seeds": "0-99999999999"}, {"seeds": "x"}, {"c-0-settings": "{"}, {"c-0-settings": "colour=1"},
        {"problems": "nothing"}, {"c-0-name": ""}, {"baselines": []},
    ]  # fmt: skip
    for bad in nonsense:
        assert pages.post("/campaigns/new/", sent | bad).status_code == 200, bad
    assert Campaign.objects.count() == before + 1


def test_one_click_fills_the_form_with_a_set(pages: Client) -> None:
    make_suite()
    text = pages.get("/campaigns/new/?set=stark").content.decode()
    assert all(arm.name in text for arm in SETS["stark"].arms)


def test_the_api_starts_steers_and_reports(api: Call, team: Team) -> None:
    make_suite()
    body: dict[str, Any] = {
        "suite": "ours", "team": team.slug, "seeds": [1],
        "configurations": [{"name": "a", "strategy": "tune", "budget": {"evaluations": 2}}],
    }  # fmt: skip
    status, made = _answer(api("POST", "/campaigns", body))
    assert (status, made["runs"], made["state"]) == (201, 2, "running")
    one = f"/campaigns/{made['id']}"
    assert _answer(api("POST", f"{one}/pause"))[1]["state"] == "paused"
    assert _answer(api("POST", f"{one}/pause"))[0] == 409
    assert _answer(api("POST", f"{one}/resume"))[1]["state"] == "running"
    assert _answer(api("PUT", f"{one}/limits", {"tokens": 5, "parallel_runs": 3}))[1]["limits"]["tokens"] == 5
    assert _answer(api("POST", f"{one}/stop"))[1]["state"] == "stopping"
    assert _answer(api("POST", "/campaigns", body | {"seeds": [2**63]}))[0] == 422
    # A number of more than 19 digits is refused before the fields are read.
    assert _answer(api("POST", "/campaigns", body | {"seeds": [2**70]}))[0] == 400
    assert _answer(api("POST", "/campaigns", body | {"suite": "none"}))[0] == 422


def test_the_same_key_starts_one_campaign_and_another_request_under_it_is_refused(api: Call, team: Team) -> None:
    make_suite()
    body: dict[str, Any] = {
        "suite": "ours", "team": team.slug, "seeds": [1],
        "configurations": [{"name": "a", "strategy": "tune", "budget": {"evaluations": 2}}],
    }  # fmt: skip
    key, before = {"Idempotency-Key": "nightly"}, (Campaign.objects.count(), Run.objects.count())
    first, again = (_answer(api("POST", "/campaigns", body, **key)) for _ in range(2))
    assert (first[0], again[0]) == (201, 200)
    assert first[1]["id"] == again[1]["id"]
    assert _answer(api("POST", "/campaigns", body | {"seeds": [2]}, **key))[0] == 409
    run = {"problem": "softmax_rows", "team": team.slug, "budget": {"evaluations": 1}}
    assert _answer(api("POST", "/runs", run, **key))[0] == 409
    assert (Campaign.objects.count(), Run.objects.count()) == (before[0] + 1, before[1])


def test_a_refused_campaign_leaves_its_key_unused(api: Call, team: Team) -> None:
    make_suite()
    body = {"suite": "ours", "team": team.slug, "configurations": [{"name": "a", "strategy": "none"}]}
    assert _answer(api("POST", "/campaigns", body, **{"Idempotency-Key": "k"}))[0] == 422
    assert not IdempotencyKey.objects.exists()


def _answer(response: Any) -> tuple[int, Any]:
    return response.status_code, response.json()


def test_an_outsider_finds_no_campaign(client: Client, done: Campaign) -> None:
    client.force_login(make_user(make_team()))
    assert client.get(f"/campaigns/{done.pk}/").status_code == 404
    assert "campaign-" not in client.get("/campaigns/").content.decode()


def test_the_command_starts_and_reports_a_campaign(level: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_suite()
    suites = Suite.objects.count()
    call_command("campaign", "suite", str(level), "--no-trace", "--name", "mine")
    assert "1 problems, 1 that cannot be used. Licence: MIT License." in capsys.readouterr().out
    configuration = json.dumps({"name": "a", "strategy": "tune", "budget": {"evaluations": 2}})
    call_command("campaign", "start", "--suite", "ours", "--configuration", configuration, "--seeds", "0")
    campaign = Campaign.objects.latest("pk")
    call_command("campaign", "status", str(campaign.pk))
    assert "0 of 2 runs ended" in capsys.readouterr().out
    call_command("campaign", "pause", str(campaign.pk))
    with pytest.raises(CommandError, match="already paused"):
        call_command("campaign", "pause", str(campaign.pk))
    call_command("campaign", "resume", str(campaign.pk))
    call_command("campaign", "stop", str(campaign.pk))
    campaign.refresh_from_db()
    assert campaign.state == CampaignState.STOPPED
    call_command("campaign", "report", str(campaign.pk), "--format", "json")
    assert json.loads(capsys.readouterr().out.partition("{")[2].join(["{", ""]))["state"] == "stopped"
    with pytest.raises(CommandError):
        call_command("campaign", "start", "--suite", "ours", "--configuration", "{}")
    assert Suite.objects.count() == suites + 1
    assert Problem.objects.filter(slug="1_relu").exists()


def test_the_recorded_agents_in_the_documentation_can_be_started() -> None:
    call_command("campaign", "suite", "shipped", "--no-trace", stdout=StringIO())
    text = (Path(__file__).parents[2] / "docs" / "campaigns.md").read_text().partition("Recordings can be used")[2]
    command = shlex.split(text.partition("manage.py ")[2].partition("\n\n")[0])
    call_command(*command)
    configuration = Campaign.objects.latest("pk").configurations.get()
    assert configuration.providers == {"default": {"provider": "replay", "record": "mine-{problem}"}}
    assert configuration.budget == {"evaluations": 8}


def test_the_command_takes_what_the_api_takes(member: User) -> None:
    make_suite()
    roles = {"default": {"provider": "inbox"}, "code": {"provider": "replay", "record": "x"}}
    start = [
        "campaign", "start", "--suite", "ours", "--objective", "device", "--private", "--provider", "replay",
        "--model", "base", "--evaluations", "4", "--run-minutes", "1.5", "--run-usd", "0.25", "--run-tokens", "900",
        "--run-device-minutes", "2",
    ]  # fmt: skip
    for given in (
        {"name": "roles", "strategy": "sampling", "providers": roles, "budget": {"usd": 0.5}},
        {"name": "own", "strategy": "sampling", "provider": "replay", "model": "mine"},
        {"name": "model", "strategy": "sampling", "model": "other"},
        {"name": "common", "strategy": "sampling"},
    ):
        start += ["--configuration", json.dumps(given)]
    call_command(*start)
    campaign = Campaign.objects.latest("pk")
    assert (campaign.objective, campaign.is_private) == ("device", True)
    found = {one.name: one for one in campaign.configurations.all()}
    assert found["roles"].providers == roles
    assert found["roles"].budget == {"usd": "0.5"}
    records = [found[name].providers["default"]["record"] for name in ("own", "model", "common")]
    assert records == ["mine", "other", "base"]
    assert found["common"].budget == {
        "evaluations": 4, "minutes": 1.5, "usd": "0.25", "tokens": 900, "device_minutes": 2.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"name": 1}, "name"),
        ({"budget": {"usd": "abc"}}, "budget.usd"),
        ({"budget": {"evaluation": 1}}, "budget.evaluation"),
        ({"settings": 3}, "settings"),
        ({"providers": {"default": 3}}, "default"),
        ({"provider": "replay", "providers": {}}, "providers"),
        ({"model": "x"}, "model"),
        ({"colour": 1}, "colour"),
    ],
)
def test_a_wrong_type_in_a_configuration_is_refused_by_the_name_of_its_field(
    wrong: dict[str, Any], named: str
) -> None:
    make_suite()
    configuration = json.dumps({"name": "a", "strategy": "sampling", "budget": {"evaluations": 1}} | wrong)
    with pytest.raises(CommandError, match=rf"[:;] .*\b{re.escape(named)}: "):
        call_command("campaign", "start", "--suite", "ours", "--configuration", configuration)


@pytest.mark.parametrize("text", ["3", "null", "[]", "{", "NaN", '{"name": "a", "strategy": "tune", "settings": {'])
def test_a_configuration_that_is_no_json_object_is_refused(text: str) -> None:
    make_suite()
    with pytest.raises(CommandError, match="--configuration"):
        call_command("campaign", "start", "--suite", "ours", "--configuration", text)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--usd", "abc"], "limit of all runs: usd"),
        (["--usd", "1e30"], "limit of all runs: usd"),
        (["--run-usd", "nan"], "budget of each run: usd"),
        (["--run-tokens", str(10**30)], "budget of each run: tokens"),
    ],
)
def test_a_budget_or_limit_that_cannot_be_stored_is_refused(options: list[str], named: str) -> None:
    make_suite()
    configuration = json.dumps({"name": "a", "strategy": "tune"})
    with pytest.raises(CommandError, match=named):
        call_command("campaign", "start", "--suite", "ours", "--configuration", configuration, *options)

"""The dashboard in a real browser: a run is started with help, watched at work, understood and compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from optimizer.calls.stream import TokenStream
from optimizer.events.sockets import broadcast
from optimizer.loop import advance
from optimizer.models import Evaluation, Guidance, Job, JobLog, Run, Team
from tests.driven_runs import make_finished_run
from tests.factories import make_provider, make_run
from tests.llm_server import Reply, llm_server

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.split]
Visit = Callable[[str], Page]
ASKING: dict[str, Any] = {"strategy": "scientist", "providers": {"default": {"provider": "inbox"}}}


def test_the_form_tests_a_provider_tells_what_a_run_takes_and_is_kept(visit: Visit, team: Team) -> None:
    make_finished_run(team)
    with llm_server() as server:
        server.script(Reply(text='{"sum": 42}'))
        make_provider(server, team, name="local")
        page = visit("/runs/new/")
        expect(page.locator("#estimate")).to_contain_text("from 1 earlier run")
        page.get_by_label("Strategy").select_option("scientist")
        expect(page.locator("#estimate")).to_contain_text("other strategies")
        page.get_by_label("Answered by").first.select_option("local")
        page.get_by_role("button", name="Test the provider for all roles").click()
        # The first check in a server loads the client library.
        expect(page.locator(".check-said").first).to_contain_text("structured output works")
    page.get_by_label("Guidance").fill("Use LDS.")
    page.get_by_role("button", name="Link to this form").click()
    assert "strategy=scientist" in page.url and "guidance=Use" in page.url and "csrf" not in page.url
    expect(page.get_by_label("Guidance")).to_have_value("Use LDS.")
    page.get_by_text("Save as template").click()
    page.get_by_label("Name of the template").fill("Nightly")
    page.get_by_role("button", name="Save").click()
    page.goto(page.url.split("?")[0])
    page.get_by_text("Templates", exact=True).click()
    page.get_by_role("link", name="Nightly").click()
    expect(page.get_by_label("Guidance")).to_have_value("Use LDS.")


def test_a_worker_and_its_log_come_and_go_without_a_reload(visit: Visit, team: Team) -> None:
    run = make_run(team)
    page = visit(f"/runs/{run.pk}/")
    expect(page.locator("#run-status")).to_contain_text("Waiting for a runner")
    page.locator("#workers summary").click()
    advance(run.pk)
    job = Job.objects.filter(evaluation__kernel__run=run).order_by("pk")[0]
    Job.objects.filter(pk=job.pk).update(state="running", worker="gpu-7", fence=1, started_at=timezone.now())
    Evaluation.objects.filter(job=job).update(state="running", stage="timing")
    JobLog.objects.create(job=job, fence=1, seq=1, text="case 3 of 9")
    expect(page.locator("[data-connection]")).to_have_text("Live")
    broadcast(run.pk, "log", job=job.pk, fence=1, seq=1)
    expect(page.locator(".worker")).to_contain_text("case 3 of 9")


def test_what_an_agent_writes_appears_as_it_comes(visit: Visit, team: Team) -> None:
    run = make_run(team, **ASKING)
    page = visit(f"/runs/{run.pk}/")
    expect(page.locator("[data-connection]")).to_have_text("Live")
    stream = TokenStream(run.pk, 7, "writer")
    for piece in ("Stage the ", "<b>tile</b> ", "in LDS."):
        stream.add(piece)
        stream.flush()
    expect(page.locator("#tokens pre")).to_have_text("Stage the <b>tile</b> in LDS.")
    expect(page.locator("#tokens header")).to_contain_text("writer")
    # in the document, since a click scrolls the page and a reload keeps where it was
    place = "(part) => part.getBoundingClientRect().y + window.scrollY"
    before = page.locator("#run-stages").evaluate(place)
    page.locator("#agents summary").click()
    page.reload()
    expect(page.locator("#tokens")).to_be_hidden()
    assert page.locator("#run-stages").evaluate(place) == before


def test_a_person_instructs_the_agents_and_takes_it_back(visit: Visit, team: Team) -> None:
    run = make_run(team, **ASKING)
    page = visit(f"/runs/{run.pk}/")
    page.get_by_label("Guidance for the agents").fill("Try matrix instructions.")
    page.get_by_role("button", name="Add guidance").click()
    expect(page.locator(".guidance")).to_contain_text("Try matrix instructions.")
    assert Guidance.objects.standing().get().text == "Try matrix instructions."
    expect(page.locator("#feed")).to_contain_text("Guidance by")
    page.get_by_role("button", name="Withdraw").click()
    expect(page.locator(".guidance.withdrawn")).to_have_count(1)
    assert not Guidance.objects.standing().exists()


def test_the_feed_is_narrowed_and_the_address_keeps_it(visit: Visit, team: Team) -> None:
    run = make_finished_run(team)
    page = visit(f"/runs/{run.pk}/")
    page.locator("[data-feed-tabs]").get_by_text("Run", exact=True).click()
    expect(page.locator("#feed li[data-group='run']").first).to_be_visible()
    expect(page.locator("#feed li[data-group='kernel']:visible")).to_have_count(0)
    page.reload()
    expect(page.locator("#feed li[data-group='kernel']:visible")).to_have_count(0)


def test_ticked_runs_are_tagged_found_by_their_tag_and_compared(visit: Visit, team: Team) -> None:
    runs = [make_finished_run(team) for _ in range(2)]
    page = visit("/runs/")
    for run in runs:
        page.get_by_label(f"Select run {run.pk}").check()
    page.locator("#id_bulk_tags").fill("paper")
    page.get_by_role("button", name="Add tags").click()
    expect(page.locator("td.tags .tag")).to_have_count(2)
    page.locator("td.tags .tag").first.click()
    assert "tag=paper" in page.url
    for run in runs:
        page.get_by_label(f"Select run {run.pk}").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 2 runs")
    expect(page.locator(".chart-plot .scatterlayer .trace")).to_have_count(2)
    with page.expect_download() as loading:
        page.goto("/".join(page.url.split("/")[:3]) + "/runs/")
        page.get_by_role("link", name="CSV").click()
    assert loading.value.path().read_text().count("\n") == 3


def test_the_numbers_of_the_curve_come_when_they_are_opened(visit: Visit, team: Team) -> None:
    run = make_finished_run(team)
    page = visit(f"/runs/{run.pk}/")
    expect(page.locator("#curve-table tbody tr")).to_have_count(0)
    page.locator(".chart summary", has_text="Table").click()
    expect(page.locator("#curve-table tbody tr")).to_have_count(run.kernels.count())


def test_the_board_switches_to_calibration(visit: Visit, team: Team) -> None:
    run: Run = make_finished_run(team)
    call = run.calls.create(key="d", role="designer", model="m", state="answered")
    run.hypotheses.create(
        key="a", kind="experiment", title="Tile", predicted_min=5, predicted_max=20, measured_gain=9, call=call
    )
    page = visit(f"/runs/{run.pk}/hypotheses/")
    expect(page.locator("svg.range circle")).to_have_count(1)
    page.get_by_role("button", name="Calibration").click()
    expect(page.locator(".chart-plot")).to_contain_text("designer m")

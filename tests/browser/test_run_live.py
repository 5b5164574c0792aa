"""Test a run in a real browser: started, watched without a reload, steered, and opened at its best kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from optimizer.models import Run, RunState, Team, User
from optimizer.queries.budgets import Budget
from tests.browser.conftest import PASSWORD
from tests.driven_runs import make_driven_run
from tests.factories import drive, make_run

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.split]
Visit = Callable[[str], Page]

SEEN = "[...document.querySelectorAll('#feed [data-seq]')].map((line) => Number(line.dataset.seq))"
POINTS = ".chart-plot .scatterlayer .point"


def seen(page: Page) -> list[int]:
    """Return the numbers in the feed as shown, oldest first."""
    numbers: list[int] = page.evaluate(SEEN)
    return numbers


def expect_all_events(page: Page, run: Run) -> None:
    """Expect every event of the run in the feed, once and in order."""
    run.refresh_from_db()
    expect(page.locator(f"#feed [data-seq='{run.last_seq}']")).to_have_count(1)
    assert seen(page) == list(range(1, run.last_seq + 1))


def test_sign_in_start_a_run_watch_the_curve_and_open_the_best_kernel(site: str, member: User, page: Page) -> None:
    make_driven_run(1, member.teams.get())  # the shipped problems and targets are there
    page.goto(site)
    page.get_by_label("Username").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="Start a run").click()
    page.get_by_label("Problem").select_option("softmax_rows")
    page.get_by_label("Evaluations").fill("6")
    page.get_by_role("button", name="Start the run").click()
    expect(page.locator("[data-connection]")).to_have_text("Live")
    page.evaluate("window.stayed = true")

    run = Run.objects.latest("pk")
    drive(run, rounds=2)
    expect(page.locator(POINTS).first).to_be_visible()
    early = page.locator(POINTS).count()
    drive(run)
    run.refresh_from_db()
    expect(page.locator("#run-state")).to_contain_text("Finished")
    expect(page.locator(POINTS)).to_have_count(run.kernels.count())
    assert page.locator(POINTS).count() > early
    expect(page.locator("#kernel-table tbody tr")).to_have_count(run.kernels.count())
    assert page.evaluate("window.stayed") is True

    assert run.best_kernel is not None
    page.locator("#run-tiles").get_by_role("link", name=f"kernel #{run.best_kernel.number}").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"Kernel #{run.best_kernel.number}")
    page.locator("a[href='#tab-profile']").click()
    expect(page.locator("#samples-title")).to_be_visible()


def test_the_feed_has_every_event_once_after_a_lost_connection(visit: Visit, team: Team, page: Page) -> None:
    sockets: list[WebSocketRoute] = []

    def pass_on(socket: WebSocketRoute) -> None:
        sockets.append(socket)
        socket.connect_to_server()

    page.route_web_socket("**/ws/**", pass_on)
    run = make_run(team)
    visit(f"/runs/{run.pk}/")
    expect(page.locator("[data-connection]")).to_have_text("Live")
    drive(run, rounds=1)
    sockets[0].close()
    drive(run)
    expect_all_events(page, run)
    expect(page.locator("[data-connection]")).to_have_text("Live")
    assert len(sockets) > 1


def test_where_sockets_are_blocked_the_page_polls(visit: Visit, team: Team, page: Page) -> None:
    page.route_web_socket("**/ws/**", lambda socket: socket.close())
    run = make_run(team)
    visit(f"/runs/{run.pk}/")
    drive(run)
    expect_all_events(page, run)
    expect(page.locator("#run-state")).to_contain_text("Finished")


def test_live_updates_move_nothing_under_the_reader(visit: Visit, team: Team, page: Page) -> None:
    run = make_driven_run(2, team, budget=Budget(evaluations=8))
    visit(f"/runs/{run.pk}/")
    expect(page.locator(POINTS).first).to_be_visible()
    page.evaluate(
        """() => { window.shifted = 0; window.movers = [];
        new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
          window.shifted += entry.value;
          window.movers.push(...entry.sources.map(({ node }) => node?.id || node?.className || node?.nodeName));
        }))
          .observe({ type: "layout-shift" }); }"""
    )
    drive(run)
    expect(page.locator("#run-state")).to_contain_text("Finished")
    page.wait_for_timeout(2500)
    assert page.evaluate("window.shifted") < 0.02, page.evaluate("window.movers")


@pytest.mark.npm
def test_a_link_that_somebody_is_at_stays_under_the_focus_while_its_table_grows(visit: Visit, team: Team) -> None:
    run = make_driven_run(1, team)
    page = visit(f"/runs/{run.pk}/")
    link = page.locator("#kernel-table tbody th a").first
    link.focus()
    link.evaluate("(link) => { window.held = link; }")
    before = page.locator("#kernel-table tbody tr").count()
    drive(run)
    expect(page.locator("#kernel-table tbody tr")).to_have_count(run.kernels.count())
    assert run.kernels.count() > before
    assert page.evaluate("held.isConnected && document.activeElement === held")


def test_a_page_whose_scripts_npm_could_not_install_is_live_all_the_same(
    visit: Visit, team: Team, page: Page
) -> None:
    page.route("**/npm/**", lambda route: route.fulfill(body="", content_type="text/javascript"))
    run = make_run(team)
    visit(f"/runs/{run.pk}/")
    drive(run)
    expect(page.locator("#run-state")).to_contain_text("Finished")
    expect(page.locator("#kernel-table tbody tr")).to_have_count(run.kernels.count())


def test_pause_resume_and_stop_from_the_page(visit: Visit, team: Team) -> None:
    run = make_driven_run(1, team)
    page = visit(f"/runs/{run.pk}/")
    for button, state in (
        ("Pause", RunState.PAUSED),
        ("Resume", RunState.RUNNING),
        ("Stop the run", RunState.STOPPING),
    ):
        if button == "Stop the run":
            page.locator("#run-actions summary", has_text="Stop").click()
        page.get_by_role("button", name=button).click()
        expect(page.locator("#run-state .badge")).to_have_text(state.label)
        run.refresh_from_db()
        assert run.state == state


def test_a_button_is_not_taken_from_under_the_focus(visit: Visit, team: Team) -> None:
    run = make_driven_run(1, team, budget=Budget(evaluations=8))
    page = visit(f"/runs/{run.pk}/")
    page.get_by_role("button", name="Pause").focus()
    drive(run, rounds=2)
    run.refresh_from_db()
    assert run.state == RunState.RUNNING
    expect(page.locator(f"#feed [data-seq='{run.last_seq}']")).to_have_count(1)
    expect(page.get_by_role("button", name="Pause")).to_be_focused()

"""Walk through the pages of runs as a person sees them: what is in sight, and what a click does."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from optimizer.models import RunState, Team
from tests.driven_runs import make_driven_run, make_finished_run

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.split]
Visit = Callable[[str], Page]
IN_SIGHT = (
    "(box) => { const { left, right } = box.getBoundingClientRect(); return left >= 0 && right <= innerWidth; }"
)

OVERFLOW = "(menu) => menu.scrollWidth - menu.clientWidth"


def test_the_menu_the_first_screen_the_bulk_bar_and_the_question_before_a_stop(visit: Visit, team: Team) -> None:
    ended, live = make_finished_run(team), make_driven_run(1, team, title="Live")
    page = visit("/runs/")
    for width in (1440, 1280, 1024, 390):
        page.set_viewport_size({"width": width, "height": 900})
        links = page.locator(".site-nav > ul a:visible, .site-nav .more")
        assert links.count() >= 4 and all(link.evaluate(IN_SIGHT) for link in links.all()), width
        expect(page.locator(".site-nav").get_by_role("link", name="Inbox")).to_be_visible()
        assert page.locator(".site-nav").evaluate(OVERFLOW) <= 0, f"the menu runs into the search at {width}"
    page.set_viewport_size({"width": 1440, "height": 900})

    # The bar comes with the first selected run.
    expect(page.locator("#ticked")).to_be_hidden()
    page.get_by_label("Select all runs on this page").check()
    expect(page.locator("#ticked [data-count]")).to_have_text("2 selected")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#ticked")).to_be_hidden()
    rows = page.locator("#runs-table tbody tr")
    assert all(row.bounding_box()["height"] <= 38 for row in rows.all())  # type: ignore[index]

    # Curve, best kernel and events are above the fold.
    page.goto(page.url.split("/runs/")[0] + f"/runs/{ended.pk}/")
    for part in ("#run-tiles", ".chart-plot", ".feed-box"):
        box = page.locator(part).bounding_box()
        assert box is not None and box["y"] < 600, part
    expect(page.locator("#workers")).to_have_count(0)
    expect(page.locator(".chart-plot .scatterlayer .point").first).to_be_visible()
    page.get_by_label("Export chart").first.click()
    with page.expect_download() as loading:
        page.get_by_role("button", name="CSV").first.click()
    assert loading.value.suggested_filename == "best-so-far.csv"
    assert "Best so far" in loading.value.path().read_text()

    # The palette leads to a problem by a word of its name.
    page.keyboard.press("Control+k")
    page.locator("#palette input").fill("softmax")
    expect(page.locator("#palette-list li", has_text="problem ·").first).to_be_visible()
    page.keyboard.press("Escape")

    # Stop asks first; Escape takes the question back.
    page.goto(page.url.split("/runs/")[0] + f"/runs/{live.pk}/")
    page.locator("#run-actions summary", has_text="Stop").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Stop the run")).to_be_hidden()
    live.refresh_from_db()
    assert live.state == RunState.RUNNING
    page.get_by_role("navigation", name="Pages of this run").get_by_role("link", name="Kernels").click()
    expect(page).to_have_url(re.compile(r"/kernels/$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Live")

"""What holds for every page: it fits a telephone, breaks no policy, works without scripts, and can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from optimizer.models import Run, Team
from tests.factories import drive, make_run

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Visit = Callable[[str], Page]

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
AXE_RUN = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations.filter(({ impact }) => ["serious", "critical"].includes(impact))
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target).join(", ")}`);
}"""


@pytest.fixture
def run(team: Team) -> Run:
    return drive(make_run(team))


def addresses(run: Run) -> list[str]:
    return ["/sign-in/", "/runs/", "/runs/?q=nothing-fits", "/runs/new/", f"/runs/{run.pk}/",
            f"/runs/{run.pk}/kernels/1/", "/problems/", "/problems/softmax_rows/", "/targets/", "/targets/cpu/",
            "/runners/", "/inbox/", "/providers/", "/help/"]  # fmt: skip


def settled(page: Page) -> Page:
    expect(page.locator(".chart-plot[data-state='Drawing…']")).to_have_count(0, timeout=15_000)
    return page


@pytest.mark.parametrize("width", [360, 3840])
def test_no_page_is_wider_than_its_window(visit: Visit, run: Run, page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    for address in addresses(run):
        settled(visit(address))
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address


def test_every_page_has_a_title_one_heading_and_a_way_past_the_menu(visit: Visit, run: Run) -> None:
    for address in addresses(run)[1:]:
        page = visit(address)
        assert page.title().endswith("· Kernel Scientist"), address
        assert page.locator("h1").count() == 1, address
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()


@pytest.mark.axe
@pytest.mark.parametrize("theme", ["light", "dark", "contrast"])
def test_axe_finds_nothing_serious(visit: Visit, run: Run, page: Page, site: str, theme: str) -> None:
    page.context.add_cookies([{"name": "theme", "value": theme, "url": site}])
    found = {}
    for address in addresses(run):
        settled(visit(address))
        page.evaluate(AXE.read_text())
        if faults := page.evaluate(AXE_RUN):
            found[address] = faults
    assert found == {}


def test_a_chosen_appearance_comes_at_once_and_stays(visit: Visit, member: object) -> None:
    page = visit("/runs/")
    page.get_by_label("Appearance").click()
    page.get_by_role("button", name="Dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.body).colorScheme") == "dark"
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_filters_change_the_address_and_the_table(visit: Visit, run: Run) -> None:
    page = visit("/runs/")
    expect(page.locator("#runs-table tbody tr")).to_have_count(1)
    page.locator("#id_state").select_option("failed")
    expect(page.locator("#runs-table")).to_contain_text("No run fits these filters")
    assert "state=failed" in page.url
    page.go_back()
    expect(page.locator("#runs-table tbody tr")).to_have_count(1)


def test_another_strategy_brings_its_own_settings(visit: Visit, run: Run) -> None:
    page = visit("/runs/new/")
    expect(page.get_by_label("Sampler")).to_have_count(1)
    page.get_by_label("Strategy").select_option("scientist")
    expect(page.get_by_label("Avenues")).to_have_count(1)
    expect(page.get_by_label("Guidance")).to_be_visible()


def test_a_negative_budget_is_refused_beside_the_field(visit: Visit, run: Run) -> None:
    page = visit("/runs/new/")
    page.get_by_label("Evaluations").fill("-3")
    page.get_by_role("button", name="Start the run").click()
    box = page.get_by_label("Evaluations")
    expect(box).to_have_attribute("aria-invalid", "true")
    expect(page.locator(".field", has=box).locator(".error")).to_be_visible()
    assert Run.objects.count() == 1


def test_a_range_of_lines_has_an_address(visit: Visit, run: Run) -> None:
    page = visit(f"/runs/{run.pk}/kernels/1/")
    page.get_by_role("link", name="Line 3", exact=True).click()
    page.get_by_role("link", name="Line 6", exact=True).click(modifiers=["Shift"])
    assert page.url.endswith("#L3-L6")
    page.reload()
    expect(page.locator(".code li.marked")).to_have_count(4)


@pytest.fixture
def without_scripts(
    browser: Browser, site: str, sign_in: Callable[[BrowserContext], None]
) -> Iterator[Callable[[str], Page]]:
    context = browser.new_context(java_script_enabled=False)
    sign_in(context)
    page = context.new_page()

    def go(address: str) -> Page:
        page.goto(site + address)
        return page

    yield go
    context.close()


def test_without_scripts_a_run_can_be_started_read_and_stopped(without_scripts: Visit, run: Run) -> None:
    page = without_scripts("/runs/new/")
    page.get_by_role("button", name="Start the run").click()
    started = Run.objects.latest("pk")
    assert started != run
    page.get_by_role("button", name="Stop").click()
    started.refresh_from_db()
    assert started.state in ("stopping", "stopped")
    page = without_scripts(f"/runs/{run.pk}/")
    page.get_by_text("The curve as a table").click()
    expect(page.locator("#curve-table tbody tr")).to_have_count(run.kernels.count())

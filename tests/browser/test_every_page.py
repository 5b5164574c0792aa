"""Test what holds for every page: it fits a telephone, breaks no policy, works without scripts, and can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, BrowserContext, Page, expect

from optimizer.actions.finding import do_edit_finding, do_write_finding
from optimizer.models import Run, Team
from optimizer.synthetic.campaigns import make_settled_campaign
from tests.browser.axe import AXE, faults_of
from tests.driven_runs import make_finished_run
from tests.factories import make_run

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.split]
Visit = Callable[[str], Page]
Appearance = tuple[str, list[str] | None]

PROMPT = [{"role": "system", "content": "You are an engineer."}, {"role": "user", "content": "Make it faster."}]
INBOX = {"default": {"provider": "inbox"}}
# `make test` looks at every page as wide as a telephone's and a laptop's and in light, `make e2e` in all of these.
WIDTHS = (3840, 360, 1280)
# All rules in light, contrast alone in the others, which change nothing else.
APPEARANCES: tuple[Appearance, ...] = (
    ("light", None),
    ("dark", ["color-contrast"]),
    ("contrast", ["color-contrast"]),
)
# The longest test of the suite is divided, so that both processes have something to do at the end.
SHARES = 4


@pytest.fixture
def run(team: Team) -> Run:
    """Return a finished run with something on every page of it."""
    run = make_finished_run(team)
    call = run.calls.create(key="d", role="designer", provider="inbox", model="m", state="answered")
    basis = run.kernels.get(number=1)
    for key, low, high, gained in (("a", 5, 20, 9), ("b", -2, 4, None)):
        run.hypotheses.create(
            key=key, kind="experiment", title="Stage the tile", round=1, basis=basis, call=call, chosen=key == "a",
            predicted_min=low, predicted_max=high, measured_gain=gained,
        )  # fmt: skip
    Run.objects.filter(pk=run.pk).update(tags=["paper"], notes="Read me.", guidance="Use LDS.")
    return run


@pytest.fixture
def new_run(team: Team) -> Run:
    """Return a run that has not begun: to go through one takes longer than a test that needs no kernel of it."""
    return make_run(team)


def addresses(run: Run) -> list[str]:
    """Return the address of every page; what follows a `#` is not asked of the server."""
    return ["/sign-in/", *about_runs(run), *about_kernels(run), *about_the_rest(run)]


def about_runs(run: Run) -> list[str]:
    one, asking = f"/runs/{run.pk}/", make_run(run.team, strategy="scientist", providers=INBOX)
    Run.objects.filter(pk=asking.pk).update(state="running", running_since=timezone.now())
    waiting = {"state": "waiting", "messages": PROMPT, "answer_schema": "FreeAnswer", "asked_at": timezone.now()}
    call = asking.calls.create(key="s", role="selector", provider="inbox", **waiting)
    return ["/runs/", "/runs/?q=nothing-fits", "/runs/?cols=tags&cols=notes&cols=by", "/runs/new/",
            f"/runs/new/?strategy=scientist&role.writer.provider=inbox&clone={run.pk}", one, f"/runs/{asking.pk}/",
            f"{one}export/", f"{one}hypotheses/", f"{one}lineage/", f"{one}parameters/", f"{one}plan/",
            f"{one}discussion/",
            f"{one}calls/", f"/runs/{asking.pk}/calls/{call.pk}/",
            f"/runs/{asking.pk}/budget/", f"/inbox/{call.pk}/", "/runs/compare/",
            f"/runs/compare/?run={run.pk}&run={asking.pk}"]  # fmt: skip


def about_kernels(run: Run) -> list[str]:
    kernels = f"/runs/{run.pk}/kernels/"
    return [f"{kernels}0/", f"{kernels}1/", *(f"{kernels}3/{part}/" for part in ("diff", "release"))]


def about_the_rest(run: Run) -> list[str]:
    named = ["problems", "problems/new", "targets", "runners", "runners/add", "inbox",
             "providers", "help", "search", "leaderboards", "knowledge",
             "knowledge/new", "knowledge/pages", "knowledge/pages/cpu/vector_exp", "account/tokens",
             "account/webhooks", "teams", "notifications", "notifications/settings",
             "campaigns", "campaigns/new", "releases", "profile", "profile/sessions", "problems/softmax_rows",
             "targets/cpu", "leaderboards/softmax_rows/cpu",
             "leaderboards/fp8_block_gemm/gfx942", "api", f"teams/{run.team.slug}"]  # fmt: skip
    author = run.team.members.get(username="ada")
    first = do_write_finding(author, run.team, "Tiles", "Larger tiles spill.\n\n* over 128 registers")
    found = f"/knowledge/{do_edit_finding(author, first, 'Tiles', 'They spill from 64 on.').pk}/"
    campaign = f"/campaigns/{make_settled_campaign(run.team, 8, 3, 2).pk}/"
    campaigns = [campaign, f"{campaign}runs/", "/campaigns/new/?set=stark"]
    searches = ["/search/?q=tile", "/search/?q=softmax"]
    return ["/?show=1", *(f"/{name}/" for name in named), *searches, found, f"{found}edit/", *campaigns]


def settled(page: Page) -> Page:
    expect(page.locator(".chart-plot[data-state='Drawing…']")).to_have_count(0)
    return page


@pytest.mark.parametrize("share", range(SHARES))
def test_every_page_fits_a_telephone_says_what_it_is_and_can_be_read(visit: Visit, run: Run, share: int) -> None:
    assert faults_in(visit, addresses(run)[share::SHARES], WIDTHS[1:], APPEARANCES[:1]) == ""


@pytest.mark.long
@pytest.mark.parametrize("share", range(SHARES))
def test_every_page_fits_every_width_and_can_be_read_in_every_appearance(
    visit: Visit, run: Run, share: int
) -> None:
    assert faults_in(visit, addresses(run)[share::SHARES], WIDTHS, APPEARANCES) == ""


def faults_in(visit: Visit, pages: list[str], widths: Sequence[int], appearances: Sequence[Appearance]) -> str:
    """Look at everything while a page is open: opening it takes longer than looking at it.

    A page that is told not to be there complains of nothing else.
    """
    found = []
    for address in pages:
        page = settled(visit(address))
        faults = [*misfits(page, widths), *unnamed(page)]
        faults += unreadable(page, appearances) if AXE.exists() else []
        found += [f"{address} {fault}" for fault in faults]
    return "\n".join(found)


def misfits(page: Page, widths: Sequence[int]) -> Iterator[str]:
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
            yield f"is {wide} px wide in a window of {width}"


def unnamed(page: Page) -> Iterator[str]:
    if not page.title().endswith("Kernel Scientist") or page.locator("h1").count() != 1:
        yield f"has the title {page.title()!r} and {page.locator('h1').count()} headings"
    if page.locator(".skip").count() != 1:
        yield "has no way past its menu"


def unreadable(page: Page, appearances: Sequence[Appearance]) -> Iterator[str]:
    """Yield what axe finds."""
    for theme, rules in appearances:
        page.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
        if faults := faults_of(page, rules):
            yield f"in {theme}: {'; '.join(faults)}"


def test_the_first_key_leads_past_the_menu(visit: Visit, new_run: Run) -> None:
    page = visit("/runs/")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()


@pytest.mark.axe
def test_the_page_of_what_is_not_here_can_be_read_in_any_appearance_and_width(
    site: str, page: Page, new_run: Run, sign_in: Callable[[BrowserContext], None]
) -> None:
    sign_in(page.context)
    found = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        answer = page.goto(f"{site}/runs/{new_run.pk + 1000}/")
        assert answer is not None and answer.status == 404
        page.set_viewport_size({"width": 360, "height": 780})
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        found += [f"{fault} in {scheme}" for fault in faults_of(page)]
    assert "\n".join(found) == ""


def test_a_chosen_appearance_comes_at_once_and_stays(visit: Visit, member: object) -> None:
    page = visit("/runs/")
    page.get_by_label("Appearance").click()
    page.get_by_role("button", name="Dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.body).colorScheme") == "dark"
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_filters_change_the_address_and_the_table(visit: Visit, new_run: Run) -> None:
    page = visit("/runs/")
    expect(page.locator("#runs-table tbody tr")).to_have_count(1)
    page.locator("#id_state").select_option("failed")
    expect(page.locator("#runs-table")).to_contain_text("No matching runs")
    assert "state=failed" in page.url
    page.go_back()
    expect(page.locator("#runs-table tbody tr")).to_have_count(1)


def test_another_strategy_brings_its_own_settings(visit: Visit, new_run: Run) -> None:
    page = visit("/runs/new/")
    expect(page.get_by_label("Sampler")).to_have_count(1)
    page.get_by_label("Strategy").select_option("scientist")
    expect(page.get_by_label("Avenues")).to_have_count(1)
    expect(page.get_by_label("Guidance")).to_be_visible()


def test_a_negative_budget_is_refused_beside_the_field(visit: Visit, new_run: Run) -> None:
    page = visit("/runs/new/")
    page.get_by_label("Evaluations").fill("-3")
    page.get_by_role("button", name="Start the run").click()
    box = page.get_by_label("Evaluations")
    expect(box).to_have_attribute("aria-invalid", "true")
    expect(page.locator(".field", has=box).locator(".error")).to_be_visible()
    assert Run.objects.count() == 1


def test_a_range_of_lines_has_an_address(visit: Visit, run: Run) -> None:
    page = visit(f"/runs/{run.pk}/kernels/1/")
    page.locator("[data-tabs]").get_by_role("link", name="Source").click()
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
    # The page that answers is the sign that the form has arrived.
    stop = page.locator("#run-actions summary", has_text="Stop")
    expect(stop).to_be_visible()
    started = Run.objects.latest("pk")
    assert started != run
    stop.click()
    page.get_by_role("button", name="Stop the run").click()
    expect(stop).to_have_count(0)
    started.refresh_from_db()
    assert started.state in ("stopping", "stopped")
    page = without_scripts(f"/runs/{run.pk}/")
    page.locator(".chart summary", has_text="Table").click()
    page.get_by_role("link", name="All numbers of the curve").click()
    expect(page.locator("#curve-table tbody tr")).to_have_count(run.kernels.count())

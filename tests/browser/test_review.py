"""Test two people in two browsers: what one drafts, publishes, resolves and suggests, and what the other sees of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, Page, expect

from optimizer.actions.review import Place, Words, do_begin_thread, do_say
from optimizer.actions.suggestion import Suggestion, do_suggest
from optimizer.models import AuthorKind, Evaluation, EvaluationStatus, Guidance, Kernel, Run, Team, TeamRole, User
from tests.browser.axe import faults_of
from tests.factories import BASE, drive, make_kernel, make_question, make_run, make_user
from tests.site import served
from tests.site.site_process import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.split]
Visit = Callable[[str], Page]
MEASURED_WITHIN_S = 120.0
TOO_WIDE_BY = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def run(team: Team) -> Run:
    """Return a run with its seeds measured."""
    return drive(make_run(team), rounds=1)


@pytest.fixture
def kernel(run: Run) -> Kernel:
    """Return the second of two generations; line 50 differs."""
    old = make_kernel(run, BASE)
    return make_kernel(run, BASE.replace("float line_50 = 50.0f;", "float line_50 = 51.0f;"), old)


@pytest.fixture
def others(browser: Browser, site: str, team: Team) -> Iterator[Page]:
    """Yield a second person's browser."""
    user = make_user(team, TeamRole.REVIEWER, "grace")
    client = Client()
    client.force_login(user)
    context = browser.new_context()
    value = client.cookies[settings.SESSION_COOKIE_NAME].value
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": value, "url": site}])
    yield context.new_page()
    context.close()


def diff_of(kernel: Kernel) -> str:
    return f"/runs/{kernel.run_id}/kernels/{kernel.number}/diff/"


def comment_on_line(page: Page, line: int, words: str, button: str) -> None:
    """Comment as a person does: press the line's number and the key, and type the words."""
    page.locator(f"#n{line} a").click()
    page.keyboard.press("c")
    page.locator("form.say textarea").fill(words)
    page.locator("form.say").get_by_role("button", name=button).click()


def test_a_draft_is_invisible_to_the_other_and_its_publishing_is_seen_live(
    visit: Visit, site: str, others: Page, kernel: Kernel
) -> None:
    mine = visit(diff_of(kernel))
    comment_on_line(mine, 50, "Why 51?", "Save draft")
    expect(mine.locator(".comment.draft")).to_contain_text("Why 51?")
    others.goto(site + diff_of(kernel))
    expect(others.locator("#diff[data-live]")).to_have_count(1)
    expect(others.locator(".thread")).to_have_count(0)

    before = others.evaluate("document.body.scrollHeight")
    mine.get_by_label("Request changes").check()
    mine.get_by_role("button", name="Submit review (1)").click()
    expect(others.locator("#news")).to_contain_text("ada: requests changes, 1 comment")
    assert others.evaluate("document.body.scrollHeight") == before, "nothing moves under the reader"
    others.locator("#news").get_by_role("link", name="Show").click()
    expect(others.locator(".thread")).to_contain_text("Why 51?")
    expect(others.locator(".title-line")).to_contain_text("ada: request changes")


def test_a_thread_follows_into_the_third_generation_and_is_resolved_there_for_everybody(
    visit: Visit, site: str, others: Page, kernel: Kernel
) -> None:
    third = make_kernel(kernel.run, "int first;\nint second;\n" + kernel.source, kernel)
    mine = visit(diff_of(kernel))
    comment_on_line(mine, 50, "Why 51?", "Publish now")
    expect(mine.locator("[data-state]")).to_have_text("Open")
    others.goto(site + diff_of(third))
    carried = others.locator("tr.said .thread")
    expect(carried).to_contain_text("the same lines")
    row = others.locator("tr.said").locator("xpath=preceding-sibling::tr[1]")
    expect(row.locator("td.num").last).to_have_text("52")
    carried.get_by_role("button", name="Resolve").click()
    expect(others.locator("tr.said.new")).to_have_count(0)
    expect(others.locator("tr.said.old [data-state]")).to_have_text("Resolved")
    expect(mine.locator("[data-state]")).to_have_text("Resolved")
    expect(mine.locator(".thread footer > form button")).to_have_text("Reopen")


def test_a_suggested_edit_is_previewed_submitted_measured_and_stands_in_the_lineage(visit: Visit, run: Run) -> None:
    base = run.kernels.get(key="seed.vectorised")
    page = visit(f"/runs/{run.pk}/kernels/{base.number}/suggest/")
    source = page.get_by_label("Source")
    source.fill(source.input_value() + "// tried by hand\n")
    page.get_by_label("Title").fill("By hand")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("table.diff ins")).to_contain_text("// tried by hand")
    page.get_by_role("button", name="Submit edit").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("By hand")
    drive(run)
    edit = run.kernels.get(author_kind=AuthorKind.PERSON)
    assert edit.evaluation.time_us and edit.parents.get() == base
    # The page loads itself again; a reload from here would meet that one and end with net::ERR_ABORTED.
    expect(page.locator(".title-line")).to_contain_text("Correct")
    # All tabs are in sight until the page's scripts have run, and another one leads there too.
    page.get_by_role("link", name="Changes and review").first.click()
    expect(page.locator(".change")).to_contain_text("All shapes")


@pytest.fixture
def worker(site: str, tmp_path: Path) -> Iterator[None]:
    """Run what a measuring machine runs: a Celery worker with the real harness."""
    # The device's lock is this site's own: what else evaluates on this machine must not hold its worker up.
    process = served.bench_worker(tmp_path / "worker.log", "-P", "solo", KERNELSCI_LOCKS=str(tmp_path))
    yield
    process.terminate()
    process.wait(30)


@pytest.mark.long
def test_a_suggested_edit_is_built_and_timed_by_a_real_worker(visit: Visit, run: Run, worker: None) -> None:
    base = run.kernels.get(key="seed.vectorised")
    page = visit(f"/runs/{run.pk}/kernels/{base.number}/suggest/")
    page.get_by_label("Source").fill(base.source + "\n// one more line\n")
    page.get_by_label("Title").fill("By hand")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Submit edit").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("By hand")
    edit = run.kernels.get(author_kind=AuthorKind.PERSON)
    wait_for(lambda: Evaluation.objects.filter(kernel=edit, finished_at__isnull=False).exists(), MEASURED_WITHIN_S)
    evaluation = Evaluation.objects.get(kernel=edit)
    assert evaluation.status == EvaluationStatus.CORRECT, evaluation.result
    result = evaluation.as_readable_result()
    assert result is not None and result.build is not None and result.build.artefact_hash
    assert evaluation.time_us and evaluation.measurements.filter(subject="candidate").exists()
    # The page loads itself again; a reload from here would meet that one and end with net::ERR_ABORTED.
    expect(page.locator(".title-line")).to_contain_text("Correct")


def test_guidance_written_in_a_comment_is_found_in_the_next_stored_prompt(
    visit: Visit, run: Run, member: User
) -> None:
    seed = run.kernels.get(key="seed.vectorised")
    page = visit(f"{diff_of(seed)}?against=none")
    page.locator("#n12 a").click()
    page.keyboard.press("c")
    page.locator("form.say textarea").fill("Keep the row in registers.")
    page.locator("form.say").get_by_label("For the agents").select_option("run")
    page.locator("form.say").get_by_role("button", name="Publish now").click()
    expect(page.locator(".tag.guidance")).to_contain_text("whole run")
    call = make_question(seed)
    assert "> Keep the row in registers." in call.messages[1]["content"]
    Kernel.objects.filter(pk=make_kernel(run, "int led_to;", seed).pk).update(call=call)
    page.reload()
    led_to = page.locator(".followed a")
    expect(led_to).to_have_count(1)
    led_to.click()
    expect(page.get_by_role("heading", name="Guidance its author read")).to_be_visible()
    assert Guidance.objects.get().author == member


def test_who_else_reads_a_diff_is_seen_and_a_new_generation_is_a_banner_that_moves_nothing(
    visit: Visit, site: str, others: Page, kernel: Kernel, member: User
) -> None:
    mine = visit(diff_of(kernel))
    others.goto(site + diff_of(kernel))
    expect(mine.locator("#here")).to_have_text("Also here: grace")
    expect(others.locator("#here")).to_have_text("Also here: ada")
    place = "[document.body.scrollHeight, document.getElementById('n50').getBoundingClientRect().top]"
    before = others.evaluate(place)
    third = do_suggest(member, Suggestion(kernel, kernel.source + "int third;\n", "Third", ""))
    expect(others.locator("#generation")).to_contain_text("has arrived: Third")
    assert others.evaluate(place) == before
    others.locator("#generation").get_by_role("link", name="Load").click()
    expect(others).to_have_url(site + diff_of(third))
    expect(others.locator("table.diff ins")).to_contain_text("third")
    expect(mine.locator("#here")).to_have_text("")


def test_keys_walk_through_the_changes_and_open_the_list_of_keys(visit: Visit, kernel: Kernel) -> None:
    page = visit(diff_of(kernel))
    page.keyboard.press("n")
    expect(page.locator("tr.cursor")).to_have_class("changed cursor")
    page.keyboard.press("k")
    expect(page.locator("tr.cursor td.num").first).to_have_text("49")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Next, previous change")
    page.keyboard.press("Escape")
    page.keyboard.press("[")
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"Kernel #{kernel.number - 1}")


def test_folded_lines_open_in_place_and_an_address_leads_to_a_folded_line(visit: Visit, kernel: Kernel) -> None:
    page = visit(diff_of(kernel))
    expect(page.locator("#n5")).to_have_count(0)
    page.locator("tr.gap").first.get_by_role("link", name="all").click()
    expect(page.locator("#n5")).to_have_count(1)
    expect(page.locator("#n90")).to_have_count(0)
    page = visit(f"{diff_of(kernel)}#n90")
    expect(page.locator("#n90.marked")).to_be_visible()


def test_without_scripts_lines_open_and_a_comment_is_made(
    browser: Browser, site: str, kernel: Kernel, sign_in: Callable[..., None]
) -> None:
    context = browser.new_context(java_script_enabled=False)
    sign_in(context)
    page = context.new_page()
    page.goto(site + diff_of(kernel))
    page.locator("tr.gap").first.get_by_role("link", name="all").click()
    expect(page.locator("#n5")).to_have_count(1)
    page.get_by_label("Side").select_option("new")
    page.get_by_label("From line").fill("50")
    page.get_by_label("to line").fill("50")
    page.locator("form.say textarea").fill("Without a script.")
    page.get_by_role("button", name="Publish now").last.click()
    expect(page.locator("tr.said .thread")).to_contain_text("Without a script.")
    context.close()


@pytest.mark.axe
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_diffs_with_threads_the_discussion_and_the_editor_have_no_fault_that_axe_finds(
    visit: Visit, page: Page, kernel: Kernel, member: User, scheme: Literal["light", "dark"]
) -> None:
    page.emulate_media(color_scheme=scheme)
    do_say(member, Place(kernel.run, kernel, None, 50, 50, "new"), Words("Why **51**? `x`"))
    do_begin_thread(member, Place(kernel.run, kernel, None, 12, 14, "new"), Words("Draft."))
    run = f"/runs/{kernel.run_id}/"
    found = []
    for address in (diff_of(kernel), diff_of(kernel) + "?view=unified", f"{run}discussion/",
                    f"{run}kernels/{kernel.number}/suggest/"):  # fmt: skip
        found += [f"{address}: {fault}" for fault in faults_of(visit(address))]
    assert "\n".join(found) == ""


def test_a_click_on_a_line_moves_nothing_and_escape_or_cancel_give_the_comment_up(
    visit: Visit, kernel: Kernel
) -> None:
    page = visit(diff_of(kernel))
    at = "document.getElementById('n50').getBoundingClientRect().top"
    before = page.evaluate(at)
    page.locator("#n50 a").click()
    assert page.evaluate(at) == before
    expect(page.locator("#n50.marked")).to_be_visible()
    ways: tuple[Callable[[], None], ...] = (
        lambda: page.keyboard.press("Escape"),
        lambda: page.get_by_role("button", name="Cancel").click(),
    )
    for give_up in ways:
        page.locator("#n50 a").click()
        page.keyboard.press("c")
        expect(page.locator("#say-here textarea")).to_be_focused()
        give_up()
        expect(page.locator("#say-here")).to_have_count(0)
        expect(page.locator(".marked")).to_have_count(0)


def test_dragging_the_plus_comments_on_a_range_with_names_offered_and_a_preview(
    visit: Visit, kernel: Kernel, others: Page
) -> None:
    page = visit(diff_of(kernel))
    page.locator("#n49 + td").hover()
    page.get_by_role("button", name="Comment on line 49").hover()
    page.mouse.down()
    page.locator("#n51 + td").hover()
    page.mouse.up()
    words = page.locator("#say-here textarea")
    expect(words).to_be_focused()
    assert page.locator(".num.marked").count() == 3
    words.press_sequentially("Why, @gr")
    expect(page.get_by_role("option", name="@grace")).to_be_visible()
    page.keyboard.press("Enter")
    expect(words).to_have_value("Why, @grace ")
    page.locator("#say-here").get_by_role("button", name="Preview").click()
    expect(page.locator("#say-here .preview")).to_contain_text("@grace")
    page.locator("#say-here").get_by_role("button", name="Save draft").click()
    expect(page.locator(".thread").first).to_contain_text("lines 49–51")
    expect(page.get_by_role("link", name="Finish review (1)")).to_be_visible()


def test_code_has_the_windows_width_and_fits_a_telephone_which_is_offered_no_layouts(
    visit: Visit, page: Page, kernel: Kernel
) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    visit(diff_of(kernel))
    assert page.locator("#n50 + td").bounding_box()["width"] > 600  # type: ignore[index]
    assert page.evaluate("document.documentElement.scrollWidth") <= 1440
    page.set_viewport_size({"width": 390, "height": 800})
    expect(page.get_by_role("navigation", name="Layout")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 360, "height": 780})
    for query in ("", "?view=unified"):
        visit(diff_of(kernel) + query)
        assert page.evaluate(TOO_WIDE_BY) == 0, query

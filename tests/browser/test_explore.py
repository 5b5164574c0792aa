"""The tree that is moved about in, the palette, and single keys."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from optimizer.models import Run, Team
from tests.driven_runs import make_finished_run

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.split]
Visit = Callable[[str], Page]


@pytest.fixture
def run(team: Team) -> Run:
    return make_finished_run(team)


def test_the_tree_is_walked_by_keys_and_opens_a_kernel(visit: Visit, run: Run) -> None:
    page = visit(f"/runs/{run.pk}/lineage/")
    page.wait_for_function("() => document.querySelector('[data-lineage]').lineage !== undefined")
    page.locator("canvas").focus()
    page.keyboard.press("Home")
    expect(page.locator(".lineage-tip")).to_contain_text("#0, a beginning")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{run.pk}/kernels/0/")


VIEW = "(({ scale, left, top }) => [scale, left, top])(document.querySelector('[data-lineage]').lineage.view)"
SPOT = "(({ view }) => [view.placeX(0), view.placeY(0)])(document.querySelector('[data-lineage]').lineage)"


@pytest.mark.npm
def test_the_tree_is_dragged_and_zoomed_around_the_pointer_and_a_click_opens_a_kernel(
    visit: Visit, run: Run
) -> None:
    page = visit(f"/runs/{run.pk}/lineage/")
    expect(page.locator("[data-lineage-tools]")).to_be_visible()
    box = page.locator("canvas").bounding_box()
    assert box is not None
    scale, left, top = page.evaluate(VIEW)
    page.mouse.move(box["x"] + 300, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 340, box["y"] + 230, steps=4)
    page.mouse.up()
    assert page.evaluate(VIEW) == pytest.approx([scale, left + 40, top + 30])

    x, y = page.evaluate(SPOT)
    page.mouse.move(box["x"] + x, box["y"] + y)
    page.mouse.wheel(0, -400)
    page.wait_for_function(f"() => {VIEW}[0] > {scale * 1.2}")
    assert page.evaluate(SPOT) == pytest.approx([x, y], abs=0.5)
    page.get_by_role("button", name="Fit", exact=True).click()
    assert page.evaluate(VIEW) == pytest.approx([scale, left, top])

    x, y = page.evaluate(SPOT)
    page.mouse.click(box["x"] + x, box["y"] + y)
    page.wait_for_url(f"**/runs/{run.pk}/kernels/0/")


def test_the_palette_finds_pages_and_kernels_and_closes(visit: Visit, run: Run) -> None:
    page = visit("/runs/")
    page.keyboard.press("Control+k")
    page.keyboard.type("knowl")
    expect(page.locator("#palette-list li").first).to_contain_text("Knowledge")
    page.keyboard.press("Enter")
    page.wait_for_url("**/knowledge/")
    page.keyboard.press("Control+k")
    page.keyboard.type("softmax")
    expect(page.locator("#palette-list")).to_contain_text("kernel ·")
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()


def test_single_keys_work_until_they_are_turned_off(visit: Visit, run: Run) -> None:
    page = visit("/runs/")
    page.keyboard.press("?")
    expect(page.locator("#keyboard")).to_be_visible()
    page.locator("[data-single-keys]").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("p")
    assert page.url.endswith("/runs/")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette")).to_be_visible()


def test_a_key_typed_into_a_field_is_only_a_letter(visit: Visit, run: Run) -> None:
    page = visit("/runs/")
    page.locator("#id_q").fill("")
    page.locator("#id_q").press("?")
    expect(page.locator("#keyboard")).to_be_hidden()

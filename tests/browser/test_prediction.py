"""Test in a browser that a kernel's page shows what was predicted, also on a telephone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from optimizer.models import Team, User
from tests.factories import make_run
from tests.optimizer.test_time_model import measured

pytestmark = [pytest.mark.browser, pytest.mark.split]


def test_the_warning_and_the_figures_behind_it_fit_on_a_telephone(
    site: str, member: User, team: Team, visit: Callable[[str], Page]
) -> None:
    run = make_run(team, member)
    kernels = [measured(run, spills, 5 + spills / 2) for spills in (1, 4, 10, 20, 30, 40, 50)]
    late = measured(run, 45, None, parent=kernels[0])
    page = visit(f"/runs/{run.pk}/kernels/{late.number}/#tab-build")
    expect(page.get_by_text("slower than its parent")).to_be_visible()
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{site}/runs/{run.pk}/kernels/{kernels[-1].number}/")
        page.locator("a[href='#tab-build']").click()
        page.get_by_text("figures read from the machine code").click()
        expect(page.get_by_role("rowheader", name="Scratch instructions", exact=True)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width

"""Follow a new user from the first page to a first run on a module of their own."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import BrowserContext, Page, expect

from optimizer.models import Problem, ProblemUpload, Run, User
from optimizer.problems.inspecting import inspect_upload
from tests.factories import store_problems_and_targets

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.processes, pytest.mark.split]
Visit = Callable[[str], Page]

MODULE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1) * 2


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
"""


def test_a_stranger_comes_from_the_first_page_to_a_run_of_their_own_module(
    context: BrowserContext, site: str, member: User
) -> None:
    store_problems_and_targets()
    client = Client()
    client.force_login(member)
    name = settings.SESSION_COOKIE_NAME
    context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": site}])
    page = context.new_page()
    page.goto(site)
    expect(page.get_by_role("heading", level=1)).to_have_text("Get started")

    page.get_by_role("link", name="Add a problem").first.click()
    page.get_by_label("Name").fill("twice_softmax")
    page.get_by_label("PyTorch module").fill(MODULE)
    page.get_by_role("button", name="Check problem").click()
    expect(page.get_by_text("Waiting for a runner.")).to_be_visible()

    # what a worker of the queue `build` does; the open page then shows the result by itself
    assert inspect_upload(ProblemUpload.objects.get().pk)
    start = page.get_by_role("button", name="Add and start a run")
    expect(start).to_be_visible()
    expect(page.get_by_text("64 × 256").first).to_be_visible()
    start.click()
    expect(page.get_by_label("Problem")).to_have_value("twice_softmax")
    page.get_by_role("button", name=re.compile("^Start")).last.click()
    expect(page).to_have_url(re.compile(r"/runs/\d+/$"))

    assert Run.objects.get().problem_version.problem == Problem.objects.get(slug="twice_softmax")


def test_a_refused_module_is_told_at_the_field_in_the_open_page(visit: Visit, member: User) -> None:
    page = visit("/problems/new/")
    page.get_by_label("Name").fill("broken")
    page.get_by_label("PyTorch module").fill("print('<b>hello</b>')")
    page.get_by_role("button", name="Check problem").click()
    expect(page.get_by_text("Waiting for a runner.")).to_be_visible()
    assert inspect_upload(ProblemUpload.objects.get().pk)
    expect(page.locator("#id_source_error").first).to_have_text("broken.py: no Model")
    expect(page.get_by_label("PyTorch module")).to_have_value("print('<b>hello</b>')")
    assert not Problem.objects.filter(slug="broken").exists()

"""Take screenshots of every page of a running site: light, dark and narrow.

    python -m tests.browser.shots http://127.0.0.1:8000 --user admin --password … --out docs/screens

The site is what `manage.py up` started; the pages show whatever it has measured. Pages of a run and a kernel are
those of the newest run and its best kernel, or of `--run`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.chromium import LAUNCH

LOOKS: dict[str, tuple[int, int, Literal["light", "dark"]]] = {
    "light": (1360, 900, "light"),
    "dark": (1360, 900, "dark"),
    "narrow": (360, 780, "light"),
}

TALL = {"run": 1700, "kernel": 1900}
"""Pages whose point is below the fold: heights in pixels."""
OF_A_RUN = ("hypotheses", "lineage", "discussion", "calls", "budget", "export")
OF_A_KERNEL = ("diff", "release", "suggest")
SINGLE = {
    **{name: f"/{name}/" for name in ("problems", "targets", "runners", "inbox", "providers", "leaderboards",
                                      "knowledge", "teams", "notifications", "releases", "profile", "help", "api")},
    "problem": "/problems/softmax_rows/", "target": "/targets/cpu/", "leaderboard": "/leaderboards/softmax_rows/cpu/",
    "search": "/search/?q=softmax", "provider-new": "/providers/new/", "finding-new": "/knowledge/new/",
    "notification-settings": "/notifications/settings/", "tokens": "/account/tokens/",
    "webhooks": "/account/webhooks/", "sessions": "/profile/sessions/", "password": "/profile/password/",
    "second-factor": "/profile/second-factor/", "second-factor-on": "/profile/second-factor/on/",
}  # fmt: skip
ONE_OF = {
    "prompt": ("/inbox/", "tbody th a"), "finding": ("/knowledge/", "tbody th a"),
    "team": ("/teams/", "main a[href^='/teams/']"),
}  # fmt: skip
"""The page that lists them, and the link to one."""


def main() -> None:
    """Take them all, and name what a page had to complain about."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**LAUNCH)
        for look in LOOKS:
            if not options.look or look in options.look:
                _shoot(browser, look, options)
        browser.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site")
    parser.add_argument("--user", required=True)
    parser.add_argument("--password", required=True)
    parser.add_argument("--run", type=int)
    parser.add_argument("--look", action="append", choices=list(LOOKS))
    parser.add_argument("--only", action="append", help="names of pages")
    parser.add_argument("--full", action="store_true", help="whole pages instead of what a window shows")
    parser.add_argument("--out", type=Path, default=Path("docs/screens"))
    return parser.parse_args()


def _shoot(browser: Browser, look: str, options: argparse.Namespace) -> None:
    width, height, scheme = LOOKS[look]
    page = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme).new_page()
    page.on("console", lambda said: print(look, page.url, said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: print(look, page.url, error))
    page.goto(f"{options.site}/sign-in/")
    if not options.only or "sign-in" in options.only:
        page.screenshot(path=options.out / f"sign-in-{look}.png")
    page.fill("#id_username", options.user)
    page.fill("#id_password", options.password)
    page.click("button.primary")
    for name, address in _pages(page, options):
        if options.only and name not in options.only:
            continue
        page.set_viewport_size({"width": width, "height": TALL.get(name, height)})
        page.goto(options.site + address)
        _settle(page)
        page.screenshot(path=options.out / f"{name}-{look}.png", full_page=options.full)
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if overflow > 0:
            print(look, name, f"is {overflow} px too wide")


def _pages(page: Page, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    run = f"/runs/{options.run}/" if options.run else _first(page, "#runs-table tbody th a", "")
    ticks = page.locator("#runs-table input[name=run]")
    compared = _query(ticks.evaluate_all("all => all.map(one => one.value)"))
    yield "runs", "/runs/"
    if compared:
        yield "compare", f"/runs/compare/?{compared}"
    yield "start-run", "/runs/new/"
    yield "start-run-agents", "/runs/new/?strategy=scientist"
    if run:
        yield "run", run
        for name in OF_A_RUN:
            yield name, f"{run}{name}/"
        yield from _found(page, options, {"call": (f"{run}calls/", "tbody a[href*='/calls/']")})
        for _, tuned in _found(page, options, {"parameters": ("/runs/?strategy=tune", "#runs-table tbody th a")}):
            yield "parameters", f"{tuned}parameters/"
        page.goto(options.site + run)
        if best := _first(page, ".tile .note a", ""):
            yield "kernel", best
            for name in OF_A_KERNEL:
                yield name, f"{best}{name}/"
    for name, address in SINGLE.items():
        yield name, address
    for name, address in _found(page, options, ONE_OF):
        yield name, address
        if name == "team":
            yield "team-log", f"{address}log/"
    yield "not-here", "/runs/999999999/"


def _found(
    page: Page, options: argparse.Namespace, wanted: dict[str, tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Return the first page that a list leads to and that fits."""
    for name, (where, link) in wanted.items():
        page.goto(options.site + where)
        if address := _first(page, link, ""):
            yield name, address


def _query(runs: list[str]) -> str:
    """Return the query that compares the newest three runs, or an empty one where there are not two."""
    return "&".join(f"run={run}" for run in runs[:3]) if len(runs) > 1 else ""


def _first(page: Page, selector: str, otherwise: str) -> str:
    link = page.locator(selector).first
    return str(link.get_attribute("href")) if link.count() else otherwise


def _settle(page: Page) -> None:
    """Wait for the charts, if any; a live page never falls silent, so not for the network."""
    page.wait_for_load_state("load")
    page.wait_for_timeout(400)
    if page.locator("[data-chart] .chart-plot").count():
        expect(page.locator(".chart-plot[data-state='Drawing…']")).to_have_count(0, timeout=15_000)
        page.wait_for_timeout(400)
    if page.locator("[data-lineage]").count():
        expect(page.locator("[data-lineage-tools]")).to_be_visible(timeout=15_000)
        page.wait_for_timeout(800)


if __name__ == "__main__":
    main()

"""Take screenshots of a running site: its ten main pages at three widths, light and dark.

    python -m tests.browser.shots http://127.0.0.1:8000 --user admin --password … --out docs/screens

The site is what `manage.py up` started; the pages show whatever it has measured. Pages of a run and a kernel are
those of the newest run and its best kernel, or of `--run`. `--all` takes every other page too. Pictures are WebP, which
takes a sixth of the room of PNG; `--png` is for tools that read nothing else. `--axe` checks each page on the way.
"""

from __future__ import annotations

import argparse
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.axe import faults_of
from tests.browser.chromium import LAUNCH

SIZES = {1440: 900, 1024: 768, 390: 844}
"""Width and height of the windows, in pixels."""
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
MAIN = ("home", "runs", "start-run", "run", "kernel", "diff", "hypotheses", "calls", "leaderboard", "runner")
QUALITY = 80
PATIENCE_MS = 120_000

OF_A_RUN = ("kernels", "hypotheses", "lineage", "discussion", "calls", "budget", "export")
OF_A_KERNEL = ("diff", "release", "suggest")
SINGLE = {
    "home": "/?show=1",
    **{name: f"/{name}/" for name in ("problems", "targets", "runners", "inbox", "providers", "leaderboards",
                                      "knowledge", "teams", "notifications", "releases", "profile", "help", "api",
                                      "campaigns")},
    "problem": "/problems/softmax_rows/", "target": "/targets/cpu/", "leaderboard": "/leaderboards/softmax_rows/cpu/",
    "search": "/search/?q=softmax", "provider-new": "/providers/new/", "finding-new": "/knowledge/new/",
    "problem-new": "/problems/new/", "runner-add": "/runners/add/", "campaign-new": "/campaigns/new/",
    "notification-settings": "/notifications/settings/", "tokens": "/account/tokens/",
    "webhooks": "/account/webhooks/", "sessions": "/profile/sessions/", "password": "/profile/password/",
    "second-factor": "/profile/second-factor/", "second-factor-on": "/profile/second-factor/on/",
}  # fmt: skip
ONE_OF = {
    "prompt": ("/inbox/", "tbody th a"), "finding": ("/knowledge/", "tbody th a"),
    "team": ("/teams/", "main a[href^='/teams/']"), "runner": ("/runners/", "tbody th a"),
    "campaign": ("/campaigns/", "tbody th a"),
}  # fmt: skip
"""The page that lists them, and the link to one."""


def main() -> None:
    """Take them all, and print every fault that a page shows."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**LAUNCH)
        for width in options.width or SIZES:
            for scheme in options.scheme or SCHEMES:
                _shoot(browser, width, scheme, options)
        browser.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site")
    parser.add_argument("--user", required=True)
    parser.add_argument("--password", required=True)
    parser.add_argument("--run", type=int, help="the newest unless given")
    parser.add_argument("--kernel", type=int, help="the best of the run unless given")
    parser.add_argument("--width", type=int, action="append", choices=list(SIZES))
    parser.add_argument("--scheme", action="append", choices=SCHEMES)
    parser.add_argument("--only", action="append", help="names of pages")
    parser.add_argument("--all", action="store_true", help="every page, not the ten main ones")
    parser.add_argument("--full", action="store_true", help="whole pages instead of what a window shows")
    parser.add_argument("--png", action="store_true")
    parser.add_argument("--axe", action="store_true", help="print what axe-core finds serious; needs `make axe`")
    parser.add_argument("--out", type=Path, default=Path("docs/screens"))
    return parser.parse_args()


def _shoot(browser: Browser, width: int, scheme: Literal["light", "dark"], options: argparse.Namespace) -> None:
    look, size = f"{width}-{scheme}", {"width": width, "height": SIZES[width]}
    page = browser.new_context(viewport=size, color_scheme=scheme).new_page()  # type: ignore[arg-type]
    page.set_default_timeout(PATIENCE_MS)
    page.on("console", lambda said: print(look, page.url, said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: print(look, page.url, error))
    page.goto(f"{options.site}/sign-in/")
    page.fill("#id_username", options.user)
    page.fill("#id_password", options.password)
    page.click("button.primary")
    wanted = options.only or (None if options.all else MAIN)
    for name, address in _pages(page, options):
        if wanted is None or name in wanted:
            page.goto(options.site + address)
            _settle(page)
            _take(page, options.out / f"{name}-{look}", options)
            _print_faults(page, f"{name} at {look}", check_axe=options.axe)
    page.context.close()


def _take(page: Page, path: Path, options: argparse.Namespace) -> None:
    if options.png:
        page.screenshot(path=path.with_suffix(".png"), full_page=options.full)
        return
    asked = {"format": "webp", "quality": QUALITY, "captureBeyondViewport": options.full}
    picture = page.context.new_cdp_session(page).send("Page.captureScreenshot", asked)
    path.with_suffix(".webp").write_bytes(base64.b64decode(picture["data"]))


def _print_faults(page: Page, where: str, *, check_axe: bool) -> None:
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if overflow > 0:
        print(f"{where}: {overflow} px too wide")
    for fault in faults_of(page) if check_axe else []:
        print(f"{where}: {fault}")


def _pages(page: Page, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield names and addresses. What is looked up by visiting a list comes as it is needed."""
    page.goto(f"{options.site}/runs/")
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
        yield from _of_a_kernel(page, run, options)
    yield from SINGLE.items()
    for name, address in _found(page, options, ONE_OF):
        yield name, address
        if name == "team":
            yield "team-log", f"{address}log/"
    yield "not-here", "/runs/999999999/"


def _of_a_kernel(page: Page, run: str, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    page.goto(options.site + run)
    kernel = f"{run}kernels/{options.kernel}/" if options.kernel else _first(page, ".tile .note a", "")
    if kernel:
        yield "kernel", kernel
        for name in OF_A_KERNEL:
            yield name, f"{kernel}{name}/"


def _found(
    page: Page, options: argparse.Namespace, wanted: dict[str, tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Yield the first page that each list leads to."""
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

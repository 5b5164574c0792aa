"""Measure the first paint of a run's page in a real browser with a slow processor, and how much script it loads.

    DATABASE_URL=postgresql://…/scale python -m benchmarks.paint            # after manage.py load_scale there

A Daphne of its own serves this database; Chromium opens the page as a member who is no administrator, its processor
throttled four times and its cache off. First paint counts from the click, so it has the server's answer in it. Script
is counted as it comes over the wire, without plotly. Fails where a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, CDPSession, sync_playwright

from benchmarks.pages import member  # isort: skip # sets Django up
from django.conf import settings

from optimizer.management.commands.load_scale import TEAM
from optimizer.models import Run
from tests.browser.chromium import BROWSER, LAUNCH, PROGRAM

ROOT = Path(__file__).resolve().parent.parent
GOAL_MS, GOAL_BYTES = 1500.0, 120_000
UP_WITHIN_S = 60.0
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
ANSWERED = "performance.getEntriesByType('navigation')[0].responseEnd"


def main() -> int:
    """Measure; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=9, help="of each page, after two to warm the server up")
    parser.add_argument("--throttle", type=float, default=4.0)
    parser.add_argument("--port", type=int, default=8766)
    options = parser.parse_args()
    runs = Run.objects.filter(team__slug=TEAM)
    pages = {
        "run": runs.filter(best_kernel__isnull=False).order_by("-pk").values_list("pk", flat=True)[0],
        "run of most kernels": runs.order_by("-spent_evaluations").values_list("pk", flat=True)[0],
    }
    session = str(member().cookies[settings.SESSION_COOKIE_NAME].value)
    with served(options.port) as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(**LAUNCH | {"executable_path": BROWSER or PROGRAM})
        rows = [measure(browser, name, f"{site}/runs/{run}/", session, options) for name, run in pages.items()]
        browser.close()
    print(f"{platform.machine()}, {os.cpu_count()} cores, processor throttled {options.throttle:g} times")
    for row in rows:
        print(json.dumps(row))
    missed = [row for row in rows if row["paint_p50_ms"] > GOAL_MS or row["script_bytes"] > GOAL_BYTES]
    print(f"goals (first paint {GOAL_MS:.0f} ms, {GOAL_BYTES:,} bytes of script): {'missed' if missed else 'met'}")
    return int(bool(missed))


def measure(browser: Browser, name: str, address: str, session: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one page, with a fresh browser context each time."""
    paints, answers, script = [], [], 0
    cookie = {"name": settings.SESSION_COOKIE_NAME, "value": session, "domain": "127.0.0.1", "path": "/"}
    for n in range(options.times + 2):
        context = browser.new_context()
        context.add_cookies([cookie])  # type: ignore[list-item]
        page = context.new_page()
        devtools = context.new_cdp_session(page)
        devtools.send("Emulation.setCPUThrottlingRate", {"rate": options.throttle})
        devtools.send("Network.enable")
        devtools.send("Network.setCacheDisabled", {"cacheDisabled": True})
        loaded = _scripts(devtools)
        page.goto(address, wait_until="load")
        while (painted := page.evaluate(PAINTED)) is None:
            page.wait_for_timeout(50)
        if n >= 2:
            paints.append(painted)
            answers.append(page.evaluate(ANSWERED))
        script = round(sum(size for url, size in loaded.items() if "plotly" not in url))
        context.close()
    return {
        "page": name, "paint_p50_ms": round(statistics.median(paints)), "paint_max_ms": round(max(paints)),
        "of_it_answer_p50_ms": round(statistics.median(answers)), "script_bytes": script,
    }  # fmt: skip


def _scripts(devtools: CDPSession) -> dict[str, float]:
    """Collect the bytes of every script by its address, as they come."""
    names: dict[str, str] = {}
    sizes: dict[str, float] = {}

    def begun(event: dict[str, Any]) -> None:
        if event["type"] == "Script":
            names[event["requestId"]] = event["response"]["url"]

    def ended(event: dict[str, Any]) -> None:
        if event["requestId"] in names:
            sizes[names[event["requestId"]]] = event["encodedDataLength"]

    devtools.on("Network.responseReceived", begun)
    devtools.on("Network.loadingFinished", ended)
    return sizes


@contextmanager
def served(port: int) -> Iterator[str]:
    """Run Daphne on this database, with collected and compressed files, as `manage.py up` serves them."""
    from kernelsci_site.first_run import collect_static_files

    collect_static_files()
    command = [sys.executable, "-m", "daphne", "-v", "0", "-p", str(port), "kernelsci_site.asgi:application"]
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"KERNELSCI_STATIC_COLLECTED": "1"})
    site = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{site}/healthz", process)
        yield site
    finally:
        process.terminate()
        process.wait(20)


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + UP_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):  # noqa: S310 - our own http
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the site did not come up")


if __name__ == "__main__":
    sys.exit(main())

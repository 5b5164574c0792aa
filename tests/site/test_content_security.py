"""Test the content security policy against what really runs under it: plotly.js in a browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from playwright.sync_api import Page

from kernelsci_site.security_policy import POLICY

DRAW = b"""
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
const scatter = {x: [1, 2, 3], y: [2, 1, 3], mode: "lines+markers", name: "<b>bold</b> <i>italic</i>"};
const layout = {title: {text: "<b>T</b>"}, hovermode: "x unified"};
Plotly.newPlot("curve", [scatter, {type: "bar", x: [1, 2], y: [3, 4]}], layout, {showSendToCloud: false})
  .then(() => Plotly.newPlot("heat", [{type: "heatmap", z: [[1, 2], [3, 4]]}]))
  .then(() => { window.drawn = true; });
"""
PAGE = b"""<!doctype html><div id="curve"></div><div id="heat"></div>
<script src="/plotly.js"></script><script src="/draw.js"></script>"""
INLINE = b"""<!doctype html><p id="p" style="color: rgb(255, 0, 0)">x</p><script>window.ran = true;</script>"""


class PolicedPages(BaseHTTPRequestHandler):
    """Serves a few fixed pages under the site's policy."""

    pages: ClassVar[dict[str, tuple[str, bytes]]] = {
        "/": ("text/html", PAGE),
        "/inline": ("text/html", INLINE),
        "/draw.js": ("text/javascript", DRAW),
    }

    def do_GET(self) -> None:
        content_type, body = self.pages.get(self.path, ("text/plain", b""))
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def policed_url() -> Iterator[str]:
    plotly_file = finders.find("plotly/plotly.min.js")
    assert plotly_file is not None
    with open(plotly_file, "rb") as file:  # noqa: PTH123 - what finders return is a string
        PolicedPages.pages["/plotly.js"] = ("text/javascript", file.read())
    with ThreadingHTTPServer(("127.0.0.1", 0), PolicedPages) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.browser
def test_plotly_draws_without_violating_the_policy(page: Page, policed_url: str) -> None:
    page.goto(policed_url)
    page.wait_for_function("window.drawn")
    page.mouse.move(300, 200)
    page.wait_for_timeout(300)
    assert page.evaluate("window.violations") == []
    assert page.evaluate("getComputedStyle(document.querySelector('.modebar')).position") == "absolute"


@pytest.mark.browser
def test_an_injected_script_or_style_does_not_take_effect(page: Page, policed_url: str) -> None:
    page.goto(f"{policed_url}/inline")
    assert page.evaluate("window.ran") is None
    assert page.evaluate("getComputedStyle(document.getElementById('p')).color") == "rgb(0, 0, 0)"


def test_the_policy_allows_no_inline_code() -> None:
    assert "unsafe-inline" not in POLICY
    assert "unsafe-eval" not in POLICY


@pytest.mark.django_db
def test_every_answer_carries_the_policy(client: Client) -> None:
    assert client.get("/healthz").headers["Content-Security-Policy"] == POLICY
    assert client.get("/no-such-page").headers["Content-Security-Policy"] == POLICY

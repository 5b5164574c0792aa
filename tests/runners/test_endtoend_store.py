"""Test that an end-to-end report reaches the site beside its kernel, and that refusals are told in words."""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from runners.__main__ import main
from runners.commands import endtoend


@pytest.fixture
def site() -> Iterator[Any]:
    """Run a site that answers with `status` and `body`, and keeps what it was sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            server.seen.append((self.path, self.headers["Authorization"], json.loads(sent)))  # type: ignore[attr-defined]
            self.send_response(server.status)  # type: ignore[attr-defined]
            if server.status == 301:  # type: ignore[attr-defined]
                self.send_header("Location", f"{self.path}?moved")
            self.end_headers()
            self.wfile.write(server.body)  # type: ignore[attr-defined]

        def do_GET(self) -> None:
            server.seen.append((self.path, self.headers["Authorization"], None))  # type: ignore[attr-defined]
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.seen, server.status, server.body = [], 201, b"{}"  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def page(site: Any) -> str:
    return endtoend._page(f"http://127.0.0.1:{site.server_address[1]}/runs/3/kernels/7/release/?x=1#y")


def test_report_is_sent_to_the_kernel_whose_page_is_named(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert endtoend._store(page(site), '{"speedup": 1.2}', "ks_secret")
    assert site.seen == [("/api/v1/runs/3/kernels/7/endtoend", "Bearer ks_secret", {"speedup": 1.2})]
    assert "stored beside the kernel" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (422, b'{"detail": "The report is not of this kernel."}', "not of this kernel"),
        (502, b"<html>proxy", "502 Bad Gateway"),
        (403, b"[]", "403"),
    ],
)
def test_refusal_is_told_in_the_sites_words(
    status: int, body: bytes, told: str, site: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    site.status, site.body = status, body
    assert not endtoend._store(page(site), "{}", "ks_secret")
    said = capsys.readouterr().err
    assert told in said and "ks_secret" not in said


def test_redirect_is_told_and_not_taken_for_a_stored_report(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    site.status = 301
    assert not endtoend._store(page(site), "{}", "ks_secret")
    assert "/endtoend?moved" in capsys.readouterr().err
    assert len(site.seen) == 1  # the token goes nowhere else


def test_site_that_cannot_be_reached_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert not endtoend._store("http://127.0.0.1:9/api/v1/runs/3/kernels/7/endtoend", "{}", "t")
    assert "not stored" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["", "kernels/7", "ftp://x/runs/3/kernels/7", "https://x/runs/3/", "file:///etc/passwd"]
)
def test_what_is_no_kernels_page_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a kernel's page"):
        endtoend._page(text)


def test_missing_token_is_told_before_the_program_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KERNELSCI_TOKEN", raising=False)
    words = ["endtoend", "absent.py", "--package", "p", "--store", "https://x.org/runs/3/kernels/7/"]
    assert main(words) == 2
    assert "KERNELSCI_TOKEN" in capsys.readouterr().err


def test_command_without_store_asks_for_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["endtoend", "absent.py", "--package", "no-such-package"]) == 1
    assert "neither the folder of an exported package" in capsys.readouterr().err

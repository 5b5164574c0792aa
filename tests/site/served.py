"""Run Daphne and measuring workers as processes of their own, on a database that a test names."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from tests.factories import QUEUE
from tests.site.site_process import free_port

UP_WITHIN_S = 60.0


@contextmanager
def daphne(folder: Path, variables: Mapping[str, str], port: int | None = None) -> Iterator[str]:
    """Yield the address of a Daphne with these environment variables; its log lies in `folder`. Ends with the block."""
    port, log = port or free_port(), folder / "log"
    command = [
        sys.executable,
        "-m",
        "daphne",
        "-b",
        "127.0.0.1",
        "-p",
        str(port),
        "kernelsci_site.asgi:application",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=settings.BASE_DIR, env=environment(variables), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait_until_up(f"http://127.0.0.1:{port}", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def bench_worker(log: Path, *options: str, **variables: str) -> subprocess.Popen[bytes]:
    """Start a measuring worker with the real harness on the tests' database; what it prints goes to `log`."""
    command = [sys.executable, "-m", "celery", "--skip-checks", "-A", "kernelsci_site", "worker", "-Q", QUEUE]
    site = {"DJANGO_SETTINGS_MODULE": "kernelsci_site.settings", "DATABASE_URL": database_url(), **variables}
    with log.open("wb") as output:
        return subprocess.Popen(
            [*command, *options], env=environment(site), stdout=output, stderr=output, start_new_session=True
        )


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that belongs to this run of the tests."""
    return {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", **variables}


def database_url(name: str = "") -> str:
    """Return the address of the tests' database, or of another one on the same server."""
    entry = connection.settings_dict
    address = f"postgresql://{entry['USER']}:{entry['PASSWORD']}@/{name or entry['NAME']}?host={entry['HOST']}"
    return f"{address}&port={entry['PORT']}" if entry["PORT"] else address


def _wait_until_up(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + UP_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/healthz", timeout=5):  # noqa: S310 - our own http
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"Daphne did not answer:\n{log.read_text(errors='replace')}")

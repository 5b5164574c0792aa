"""What every test may ask for: a real PostgreSQL and a real Redis, started at the first test that needs them.

A suite that needs a program carries its mark; where the program is missing the suite is left out and named at the
end with the package to install. With CI=true leaving out is a failure, GPUs excepted.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import cache

from kernelsci_site.services.embedded import running_servers
from runners.doctor import hip_compiler, local_targets
from tests.browser.axe import AXE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
IN_CI = os.environ.get("CI", "").lower() in ("1", "true")
# Playwright's loop would make Django refuse its ORM in the same thread; these tests know what they do.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")

# mark → (whether it is here, what to install)
NEEDS: dict[str, tuple[bool, str]] = {
    "axe": (AXE.exists(), "npm, for axe-core: npm ci --prefix tests/browser"),
    "browser": (CHROMIUM is not None, "apt-get install chromium"),
    "bubblewrap": (shutil.which("bwrap") is not None, "apt-get install bubblewrap"),
    "hip": (hip_compiler() is not None, "apt-get install clang-19 rocm-device-libs"),
    "nvcc": (shutil.which("nvcc") is not None, "the CUDA toolkit"),
    "gpu": (len(local_targets()) > 1, "a GPU"),
}
HARDWARE = {"gpu", "nvcc"}
left_out: Counter[str] = Counter()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what cannot run here. Timings come late, when nothing else of this run is alive; browsers come last,
    because Playwright leaves an event loop running in which no other test could start its own."""
    for item in items:
        for mark, (is_here, package) in NEEDS.items():
            if not is_here and item.get_closest_marker(mark):
                left_out[mark] += 1
                item.add_marker(pytest.mark.skip(reason=f"needs {package}"))
    items.sort(key=lambda item: [item.get_closest_marker(mark) is not None for mark in ("browser", "timing")])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line for each suite that was left out."""
    for mark, count in sorted(left_out.items()):
        terminalreporter.write_line(f"left out: {count} tests marked {mark}; they need {NEEDS[mark][1]}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a suite that was left out for want of a package is a failure."""
    if IN_CI and set(left_out) - HARDWARE and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def servers() -> Iterator[None]:
    """Both servers, unless DATABASE_URL or REDIS_URL name others."""
    with running_servers(settings.VAR, postgres=not settings.DATABASE_URL, redis=not settings.REDIS_URL):
        yield


@pytest.fixture(autouse=True)
def fresh_cache() -> None:
    """Failed sign-ins of one test slow no other down."""
    cache.clear()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(servers: None) -> None:
    """pytest-django asks for this before it creates the test database: the moment to have a server."""


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """The system's Chromium. Its own sandbox refuses to work for root."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    return {**browser_type_launch_args, "executable_path": CHROMIUM, "args": arguments}


def pytest_unconfigure() -> None:
    """Remove the run's folder. Servers are down by now: fixtures end before this."""
    shutil.rmtree(settings.VAR.root, ignore_errors=True)
    shutil.rmtree(settings.VAR.socket_folder, ignore_errors=True)

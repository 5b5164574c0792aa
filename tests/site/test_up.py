"""Test `manage.py up` from outside: what people see, and what is left when something is killed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings

from kernelsci_site.services.var import Var
from tests.site.site_process import (
    SiteProcess,
    command_line,
    environment,
    no_process_left,
    oldest,
    processes_of,
    wait_for,
)

pytestmark = [pytest.mark.slow, pytest.mark.site]
RECOVERS_WITHIN_S = 30.0
NOBODY = 65534


@pytest.fixture(scope="module")
def site() -> Iterator[SiteProcess]:
    """Run a site that stays up while its parts are killed. The port it was told is taken, its folder new."""
    with temporary_var() as path, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = SiteProcess(path, port=taken.getsockname()[1])
        try:
            yield process.wait_until_up()
        finally:
            process.clean_up()


@contextmanager
def temporary_var() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="kernelsci-up-")) / "var"
    yield path
    shutil.rmtree(path.parent)
    shutil.rmtree(Var.at(path).socket_folder, ignore_errors=True)


def test_one_command_brings_up_pages_with_a_link_and_a_password(site: SiteProcess) -> None:
    assert site.get() == 200
    assert "/welcome/" in site.output
    assert "with the password" in site.output


def test_a_taken_port_moves_on_and_says_so(site: SiteProcess) -> None:
    assert f"port {site.port} is taken" in site.output
    assert f":{site.port}/" not in site.address


def test_a_second_start_is_refused_and_names_the_first(site: SiteProcess) -> None:
    second = subprocess.run(
        [sys.executable, "manage.py", "up"],
        cwd=settings.BASE_DIR, env=environment(site.var), capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert second.returncode == 1
    assert f"process {site.process.pid} at {site.address}" in second.stderr
    assert "Traceback" not in second.stderr
    assert site.get() == 200


@pytest.mark.parametrize(("part", "name"), [("daphne", "web"), ("-server", "redis"), ("bin/postgres", "postgres")])
def test_a_killed_part_is_started_again(site: SiteProcess, part: str, name: str) -> None:
    killed = site.pid_of(part)
    os.kill(killed, signal.SIGKILL)
    assert wait_for(lambda: f"{name} started again" in site.output, RECOVERS_WITHIN_S), site.output
    assert wait_for(lambda: site.get() == 200, RECOVERS_WITHIN_S), site.output
    assert site.pid_of(part) != killed


def test_a_killed_worker_takes_its_pool_along_and_is_started_again(site: SiteProcess) -> None:
    assert wait_for(lambda: len(_workers(site, "agents@")) > 1, RECOVERS_WITHIN_S), site.output
    before = _workers(site, "agents@")
    os.kill(oldest(before), signal.SIGKILL)
    assert wait_for(lambda: not before & processes_of(site.var), RECOVERS_WITHIN_S)
    assert wait_for(lambda: len(_workers(site, "agents@")) > 1, RECOVERS_WITHIN_S), site.output


def test_a_killed_supervisor_takes_everything_along_and_the_next_start_finds_the_data(site: SiteProcess) -> None:
    var = site.var
    site.end(signal.SIGKILL)
    assert no_process_left(var)
    again = SiteProcess(var)
    try:
        again.wait_until_up()
        assert again.get() == 200
        assert "with the password" not in again.output
        assert_ends_in_order(again, signal.SIGINT)
    finally:
        again.clean_up()


def assert_ends_in_order(site: SiteProcess, number: signal.Signals) -> None:
    assert site.end(number) == 0
    assert processes_of(site.var) == set()
    assert "nothing is left running" in site.output


def test_a_supervisor_stopped_while_starting_leaves_no_process(site: SiteProcess) -> None:
    var = site.var
    process = SiteProcess(var)
    assert wait_for(lambda: any("bin/postgres" in command_line(pid) for pid in processes_of(var)), 20)
    assert process.end(signal.SIGTERM) == 0
    assert processes_of(var) == set()
    process.clean_up()


def test_an_ordinary_user_can_start_it_and_end_it_in_order() -> None:
    home, user = Path(tempfile.mkdtemp(prefix="kernelsci-user-")), os.geteuid() or NOBODY
    # Reading everything is all that is kept of root: the interpreter may lie in root's home.
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    become += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    if os.geteuid() == 0:
        shutil.chown(home, NOBODY, NOBODY)
    else:
        become = []
    process = SiteProcess(home / "var", prefix=become)
    try:
        process.wait_until_up()
        assert process.get() == 200
        assert {(home / "var" / name).stat().st_uid for name in ("postgres", "redis", "secrets")} == {user}
        assert_ends_in_order(process, signal.SIGTERM)
    finally:
        process.clean_up()
        shutil.rmtree(home)
        sockets = Var.at(home / "var").socket_folder
        shutil.rmtree(sockets.with_name(sockets.name.replace("-0-", f"-{user}-", 1)), ignore_errors=True)
    assert processes_of(home / "var") == set()


def _workers(site: SiteProcess, name: str) -> set[int]:
    return {pid for pid in processes_of(site.var) if name in command_line(pid)}

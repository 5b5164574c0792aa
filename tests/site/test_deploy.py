"""Test the files under deploy/: they are read by what would read them, as far as that is here, and agree with the
product. Nothing here starts a container or a unit: docs/evidence/deploy.md says what came of doing so."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.management import get_commands

from optimizer.enqueue import AGENTS_QUEUE, TIMER_QUEUE
from runners.dispatch.celery import BENCH_PREFIX, BUILD_QUEUE
from runners.targets import canonical

DEPLOY = Path(settings.BASE_DIR) / "deploy"
UNITS = sorted(path for path in (DEPLOY / "systemd").iterdir() if not path.name.endswith(".example"))
OURS = {TIMER_QUEUE, AGENTS_QUEUE, BUILD_QUEUE}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "docker-compose.yml").read_text()))


def test_every_service_says_what_it_runs_and_waits_only_for_services_and_volumes_that_exist(
    compose: dict[str, Any],
) -> None:
    services, volumes = compose["services"], compose["volumes"]
    for name, service in services.items():
        assert "image" in service, name
        assert set(service.get("depends_on", {})) <= set(services), name
        sources = [volume.split(":")[0] for volume in service.get("volumes", [])]
        assert all(source in volumes or (DEPLOY / source).exists() for source in sources), name
        for wanted, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[wanted], f"{name} waits for the health of {wanted}"


def test_workers_in_containers_serve_every_queue_once(compose: dict[str, Any]) -> None:
    commands = [shlex.split(str(service.get("command", ""))) for service in compose["services"].values()]
    queues = [words[words.index("-Q") + 1] for words in commands if "-Q" in words]
    assert set(queues) >= OURS | {f"{BENCH_PREFIX}cpu"}
    assert len(queues) == len(set(queues))
    for queue in set(queues) - OURS:
        default = re.sub(r"\$\{\w+:-([^}]+)\}", r"\1", queue).removeprefix(BENCH_PREFIX)
        assert canonical(default) == default


def test_containers_of_untrusted_code_may_make_its_namespaces_and_nothing_else(compose: dict[str, Any]) -> None:
    """Without an unmasked /proc bubblewrap cannot mount one of its own; tried, and then `landlock` is what is left."""
    holding = {name: service for name, service in compose["services"].items() if re.search("-Q (build|bench)",
               str(service.get("command", "")))}  # fmt: skip
    assert len(holding) == 4
    for name, service in holding.items():
        assert {"seccomp=unconfined", "systempaths=unconfined"} <= set(service["security_opt"]), name
        assert "privileged" not in service, name
    open_to_all = [name for name, service in compose["services"].items() if "security_opt" in service]
    assert set(open_to_all) == set(holding)


def test_nobody_takes_a_callers_word_for_his_address() -> None:
    """Daphne's own reading of X-Forwarded-For believes the leftmost entry; kernelsci_site/proxies.py does not."""
    commands = "".join(path.read_text() for path in [*UNITS, DEPLOY / "docker-compose.yml"])
    assert "daphne" in commands
    assert "--proxy-headers" not in commands


@pytest.mark.skipif(shutil.which("caddy") is None, reason="needs caddy")
def test_caddy_reads_the_proxys_configuration() -> None:
    checked = subprocess.run(
        ["caddy", "adapt", "--config", str(DEPLOY / "Caddyfile"), "--adapter", "caddyfile"],
        env={**os.environ, "SITE_HOST": "kernels.example.org"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr
    assert "kernels.example.org" in checked.stdout
    assert "web:8000" in checked.stdout


def test_one_worker_alone_holds_the_clock(compose: dict[str, Any]) -> None:
    commands = {name: str(service.get("command", "")) for name, service in compose["services"].items()}
    assert [name for name, command in commands.items() if " -B" in command] == ["timer"]


def test_variables_in_the_files_are_read_by_the_product_or_named_in_the_example(compose: dict[str, Any]) -> None:
    read = "".join(
        path.read_text()
        for folder in ("kernelsci_site", "runners")
        for path in (DEPLOY.parent / folder).rglob("*.py")
    )
    for name in compose["services"]["web"]["environment"]:
        assert f'"{name}"' in read, name
    systemd = (DEPLOY / "systemd" / "site.env.example").read_text()
    assert all(f'"{name}"' in read for name in re.findall(r"^(\w+)=", systemd, re.MULTILINE))
    required = set(re.findall(r"\$\{(\w+):\?", (DEPLOY / "docker-compose.yml").read_text()))
    example = set(re.findall(r"^(\w+)=", (DEPLOY / "site.env.example").read_text(), re.MULTILINE))
    assert required <= example


@pytest.mark.parametrize("path", [*UNITS, DEPLOY / "docker-compose.yml"], ids=lambda path: path.name)
def test_commands_in_the_files_exist(path: Path) -> None:
    asked = re.findall(r"manage\.py (\w+)", path.read_text())
    assert set(asked) <= set(get_commands())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    for unit in UNITS:
        text = unit.read_text().replace("/srv/kernelsci/.venv/bin/python", str(python))
        (tmp_path / unit.name).write_text(text)
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", *(str(tmp_path / unit.name) for unit in UNITS)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_container_copies_what_the_product_needs_and_leaves_its_data_out() -> None:
    ignored = (DEPLOY.parent / ".dockerignore").read_text().split()
    assert {".git", ".venv", "var"} <= set(ignored)

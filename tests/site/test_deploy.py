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
from django.conf import settings as site
from django.core.management import get_commands

from optimizer.enqueue import AGENTS_QUEUE, TIMER_QUEUE
from optimizer.secrets.worker_tokens import token_of
from runners.dispatch.celery import BENCH_PREFIX, BUILD_QUEUE
from runners.sandbox import cgroup
from runners.signing import ed25519
from runners.targets import canonical

DEPLOY = Path(site.BASE_DIR) / "deploy"
UNITS = sorted(path for path in (DEPLOY / "systemd").iterdir() if not path.name.endswith(".example"))
WITH_SUBGROUPS = 254  # Debian 12 has 252


def systemd_version() -> int:
    """Return the version of systemd-analyze, 0 where there is none."""
    if shutil.which("systemd-analyze") is None:
        return 0
    said = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True, check=True).stdout
    return int(said.split()[1])


SYSTEMD = systemd_version()
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
    queues = [words[words.index(flag) + 1] for words in commands for flag in ("-Q", "--queue") if flag in words]
    assert set(queues) >= OURS | {f"{BENCH_PREFIX}cpu"}
    assert len(queues) == len(set(queues))
    for queue in set(queues) - OURS:
        default = re.sub(r"\$\{\w+:-([^}]+)\}", r"\1", queue).removeprefix(BENCH_PREFIX)
        assert canonical(default) == default


def test_containers_of_untrusted_code_may_make_its_namespaces_and_nothing_else(compose: dict[str, Any]) -> None:
    """Without an unmasked /proc bubblewrap cannot mount one of its own; tried, and then `landlock` is what is left."""
    holding = {name: service for name, service in compose["services"].items() if re.search("--queue (build|bench)",
               str(service.get("command", "")))}  # fmt: skip
    assert len(holding) == 4
    for name, service in holding.items():
        assert {"seccomp=unconfined", "systempaths=unconfined"} <= set(service["security_opt"]), name
        assert "privileged" not in service, name
    unconfined = [name for name, one in compose["services"].items() if "seccomp=unconfined" in one["security_opt"]]
    assert set(unconfined) == set(holding)


def test_what_runs_untrusted_code_has_a_token_for_its_queue_and_nothing_else(compose: dict[str, Any]) -> None:
    assert all(compose["networks"][name]["internal"] is True for name in ("inside", "measuring"))
    for name in ("build", "bench-cpu", "bench-rocm", "bench-cuda"):
        service = compose["services"][name]
        assert set(service["secrets"]) == {"site_key.pub", f"token_{name.replace('-', '_')}"}, name
        assert not service.get("environment"), name
        assert service["networks"] == ["measuring"], name
        assert not any(volume.startswith(("site", "redis")) for volume in service["volumes"]), name
    # Of all that has secrets of the site, only the web server can be reached from there.
    assert [name for name, one in compose["services"].items() if "measuring" in one.get("networks", [])
            and not name.startswith(("build", "bench"))] == ["web"]  # fmt: skip
    unit = (DEPLOY / "systemd" / "kernelsci-worker@.service").read_text()
    assert "User=kernelsci-worker\n" in unit
    assert re.findall("LoadCredential=([^:]+)", unit) == ["token", "site_key.pub"]
    assert not re.search(r"database_url|redis_url|secret_key|provider_key|site\.env", unit)


def test_redis_listens_on_a_socket_alone_and_asks_for_a_password(compose: dict[str, Any]) -> None:
    service = compose["services"]["redis"]
    command = " ".join(service["command"])
    assert "port 0" in command and "requirepass" in command and "unixsocket /data/valkey.sock" in command
    assert service["network_mode"] == "none" and "networks" not in service
    mounted = {name for name, one in compose["services"].items() if "redis:/run/redis:ro" in one.get("volumes", [])}
    assert mounted == {"web", "timer", "agents", "migrate"}


def test_jobs_get_control_groups_where_systemd_delegates_one() -> None:
    unit = (DEPLOY / "systemd" / "kernelsci-worker@.service").read_text()
    assert "\nDelegate=yes\n" in unit and f"\nDelegateSubgroup={cgroup.OURS}\n" in unit
    # These mask a part of /proc, which bubblewrap needs whole, limit devices, which GPUs need, or forbid to name a
    # host, which bubblewrap does in a namespace of its own.
    forbidden = "ProtectKernelLogs|ProtectClock|ProtectKernelTunables|PrivateDevices|ProtectHostname"
    assert not re.search(f"^({forbidden})=", unit, re.MULTILINE)


def test_every_container_is_read_only_and_gains_no_privileges(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert "no-new-privileges:true" in service["security_opt"], name
        # PostgreSQL's image starts as root, gives its folder to its own user, and changes to that one.
        assert service.get("cap_drop") == ["ALL"] or name == "postgres"


def test_secrets_are_files_that_the_script_makes_once(
    compose: dict[str, Any], tmp_path: Path, settings: Any
) -> None:
    script = tmp_path / "make_secrets.sh"
    shutil.copy(DEPLOY / script.name, script)
    contents = []
    for _ in range(2):
        subprocess.run(["sh", str(script)], check=True)
        contents.append({path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()})
    assert contents[0] == contents[1]
    assert set(contents[0]) == set(compose["secrets"])
    assert all(len(text) > 40 for text in contents[0].values())
    made = contents[0]
    assert ed25519.public_of(bytes.fromhex(made["site_key"])).hex() == made["site_key.pub"]
    settings.WORKER_TOKENS = str(tmp_path / "secrets" / "worker_tokens")
    lines = {name: token_of(text) for name, text in made.items() if name.startswith("token_")}
    found = {name: line and line.queue for name, line in lines.items()}
    assert found == {"token_build": "build", "token_bench_cpu": "bench.cpu", "token_bench_rocm": "bench.gfx942",
                     "token_bench_cuda": "bench.sm_90"}  # fmt: skip
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    used = {name for service in compose["services"].values() for name in service.get("secrets", [])}
    assert used == set(compose["secrets"])
    text = (DEPLOY / "docker-compose.yml").read_text()
    assert not re.search(r"\$\{(POSTGRES_PASSWORD|SECRET_KEY|PROVIDER_KEY)", text)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize(
    ("unit", "most"),
    [("kernelsci-web", 25), ("kernelsci-agent@", 25), ("kernelsci-migrate", 25), ("kernelsci-backup", 25),
     ("kernelsci-worker@", 40)],
)  # fmt: skip
def test_systemd_finds_the_units_little_exposed(unit: str, most: int) -> None:
    """Compare the exposure in tenths: a unit without any restriction has 90 or more."""
    checked = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={most}", "--no-pager",
         str(DEPLOY / "systemd" / f"{unit}.service")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout[-300:] + checked.stderr


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
        assert f'"{name.removesuffix("_FILE")}"' in read, name
    systemd = (DEPLOY / "systemd" / "site.env.example").read_text()
    assert all(f'"{name}"' in read for name in re.findall(r"^(\w+)=", systemd, re.MULTILINE))
    required = set(re.findall(r"\$\{(\w+):\?", (DEPLOY / "docker-compose.yml").read_text()))
    example = set(re.findall(r"^(\w+)=", (DEPLOY / "site.env.example").read_text(), re.MULTILINE))
    assert required <= example


@pytest.mark.parametrize("path", [*UNITS, DEPLOY / "docker-compose.yml"], ids=lambda path: path.name)
def test_commands_in_the_files_exist(path: Path) -> None:
    asked = re.findall(r"manage\.py (\w+)", path.read_text())
    assert set(asked) <= set(get_commands())


def test_units_may_write_to_the_folders_that_their_variables_name() -> None:
    example = (DEPLOY / "systemd" / "site.env.example").read_text()
    tops = {"StateDirectory": "/var/lib", "CacheDirectory": "/var/cache", "RuntimeDirectory": "/run"}
    for unit in (path for path in UNITS if path.suffix == ".service"):
        text = unit.read_text()
        assert "\nProtectSystem=strict\n" in text
        read = text + (example if "\nEnvironmentFile=/etc/kernelsci/site.env\n" in text else "")
        named = set(re.findall(r"\bKERNELSCI_(?:VAR|STATE|LOCKS)=(\S+)", read))
        made = re.findall(rf"^({'|'.join(tops)})=(.+)$", text, re.MULTILINE)
        assert named and named <= {f"{tops[kind]}/{name}" for kind, names in made for name in names.split()}, (
            unit.name
        )


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    for unit in UNITS:
        text = unit.read_text().replace("/srv/kernelsci/.venv/bin/python", str(python))
        # It ignores the line, and calls it an error: jobs are then bounded without a group.
        text = text if SYSTEMD >= WITH_SUBGROUPS else text.replace("DelegateSubgroup=kernelsci\n", "")
        (tmp_path / unit.name).write_text(text)
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", *(str(tmp_path / unit.name) for unit in UNITS)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_container_copies_what_the_product_needs_and_leaves_its_data_out() -> None:
    ignored = (DEPLOY.parent / ".dockerignore").read_text().split()
    assert {".git", ".venv", "var"} <= set(ignored)

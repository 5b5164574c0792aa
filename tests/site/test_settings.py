"""Test settings: what must hold on every installation, and which mistakes stop the start."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection

from kernelsci_site import environment
from kernelsci_site.checks import channel_layer_reaches_other_processes
from tests.site.site_process import environment as environment_of

pytestmark = pytest.mark.processes


def manage(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=60,
        env={**environment_of(settings.VAR.root), **variables},
    )  # fmt: skip


@pytest.mark.django_db
def test_the_database_is_a_real_postgresql() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int")
        assert cursor.fetchone()[0] >= 150000


def test_the_deployment_check_is_clean() -> None:
    variables = {
        "KERNELSCI_HTTPS": "1",
        "ALLOWED_HOSTS": "kernels.example.org",
        "SECRET_KEY": "x9!" * 20 + "abcdefgh",
    }
    done = manage("check", "--deploy", "--fail-level", "WARNING", **variables)
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout


def test_workers_are_spared_twisted_which_the_development_server_needs_for_its_sockets() -> None:
    assert "--noasgi" in manage("runserver", "--help").stdout
    done = manage("shell", "--no-imports", "-c", "import sys, optimizer.tasks; print('twisted' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


def test_a_wildcard_host_stops_the_start() -> None:
    done = manage("check", ALLOWED_HOSTS="*")
    assert done.returncode != 0
    assert "ALLOWED_HOSTS may not be '*'" in done.stderr


@pytest.mark.parametrize("hosts", ["*", "localhost,*", "."])
def test_a_wildcard_among_the_hosts_is_refused(hosts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLOWED_HOSTS", hosts)
    with pytest.raises(ImproperlyConfigured, match=re.escape("ALLOWED_HOSTS may not be '*'")):
        environment.allowed_hosts()


@pytest.mark.parametrize("url", ["sqlite:///db.sqlite3", "mysql://a/b", "postgresql://u:p%zz@h/d"])
def test_a_database_that_is_not_a_readable_postgresql_url_is_refused(url: str) -> None:
    with pytest.raises(ImproperlyConfigured):
        environment.database(url, pooled=False)


def test_a_password_with_special_characters_survives_the_url() -> None:
    entry = environment.database("postgresql://u:p%40%2F%3A@h:6543/d?sslmode=require", pooled=True)
    assert (entry["PASSWORD"], entry["HOST"], entry["PORT"], entry["NAME"]) == ("p@/:", "h", "6543", "d")
    assert entry["OPTIONS"]["sslmode"] == "require"
    assert entry["CONN_MAX_AGE"] == 0


def test_a_flag_that_is_neither_yes_nor_no_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBUG", "maybe")
    with pytest.raises(ImproperlyConfigured, match="DEBUG"):
        environment.flag("DEBUG")


def test_the_in_memory_channel_layer_fails_the_check(settings: pytest.FixtureRequest) -> None:
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}  # type: ignore[attr-defined]
    assert [error.id for error in channel_layer_reaches_other_processes(None)] == ["kernelsci.E001"]


def test_debug_is_off_unless_asked_for() -> None:
    assert settings.DEBUG is False


@pytest.mark.django_db
def test_migrations_are_complete() -> None:
    call_command("makemigrations", check_changes=True, dry_run=True)


def test_torch_stays_out_of_pages_and_workers() -> None:
    """Check that only processes that measure load torch, which takes seconds and half a gigabyte."""
    modules = "kernelsci_site.asgi, optimizer.tasks, kernelsci_site.management.commands.up"
    code = f"import django; django.setup(); import {modules}, sys; sys.exit('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=60,
        env=environment_of(settings.VAR.root),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_every_package_of_the_lists_has_a_reason() -> None:
    for name in ("requirements-runner.txt", "requirements.txt", "requirements-dev.txt", "packages.txt"):
        lines = Path(settings.BASE_DIR / name).read_text().splitlines()
        bare = [line for line in lines if line and not line.startswith(("#", "-r")) and "# " not in line]
        assert bare == [], name


@pytest.mark.parametrize(("wanted", "level"), [("", "WARNING"), ("ERROR", "ERROR")])
def test_the_log_level_of_the_environment_holds_in_workers_too(wanted: str, level: str) -> None:
    script = (
        "import logging; from kernelsci_site.celery import app; app.log.setup_logging_subsystem(loglevel='WARNING');"
        "print(logging.getLevelName(logging.getLogger().level))"
    )
    assert manage("shell", "-v", "0", "-c", script, KERNELSCI_LOG_LEVEL=wanted).stdout.split()[-1] == level

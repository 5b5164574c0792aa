"""`manage.py doctor`: report what this machine can do, and what to install for the rest."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

import psycopg
import redis
from django.conf import settings
from django.core.management import BaseCommand
from django.db import connection
from django.db.utils import DatabaseError, OperationalError

from kernelsci_site.services.binaries import NoServerError, find_postgres, find_redis
from kernelsci_site.services.instance import running_address
from optimizer.models import Provider, Runner
from runners.dispatch.card import DATABASE
from runners.doctor import Fact, as_json, as_text, facts

TOPIC = "Servers"
WORKERS = "Measuring workers"
PROVIDERS = "Model providers"
START = f"{settings.SITE_COMMAND} up starts it"


class Command(BaseCommand):
    """Examine compilers, GPUs, the sandbox, servers and model providers."""

    help = "Report what this machine can build, run and sandbox, and what to install for the rest."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare --json."""
        parser.add_argument("--json", action="store_true", help="one JSON object instead of text")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the findings. Exit with status 1 when something indispensable is missing."""
        found = [*facts(), *_servers(), *_workers(), *_providers()]
        answer = as_json(found)
        self.stdout.write(json.dumps(answer, indent=2) if options["json"] else as_text(found))
        if not answer["ready"]:
            sys.exit(1)


def _servers() -> list[Fact]:
    return [_supervisor(), _postgres(), _redis()]


def _supervisor() -> Fact:
    address = running_address(settings.VAR)
    return Fact(TOPIC, "supervisor", address is not None, address or "not running", f"{settings.SITE_COMMAND} up")


def _postgres() -> Fact:
    if settings.DATABASE_URL:
        return _answering("PostgreSQL", "DATABASE_URL", _postgres_version, "check DATABASE_URL")
    try:
        binaries = find_postgres()
    except NoServerError as error:
        return Fact(TOPIC, "PostgreSQL", False, "not found", str(error), needed=True)
    where = f"{binaries.folder} ({binaries.origin}, {binaries.major})"
    return _answering("PostgreSQL", where, _postgres_version, START)


def _redis() -> Fact:
    if settings.REDIS_URL:
        return _answering("Redis", "REDIS_URL", _redis_version, "check REDIS_URL")
    try:
        found = find_redis()
    except NoServerError as error:
        return Fact(TOPIC, "Redis", False, "not found", str(error), needed=True)
    advice = "" if found.is_mended else ", older than the fix of CVE-2025-49844 unless your distribution brought it"
    where = f"{found.product} {found.version}, {found.path} ({found.origin}{advice})"
    return _answering("Redis", where, _redis_version, START)


def _answering(name: str, where: str, version: Callable[[], str], remedy: str) -> Fact:
    """Report whether an available server answers right now."""
    try:
        return Fact(TOPIC, name, True, f"{where}, answers as {version()}")
    except (OperationalError, psycopg.Error, redis.RedisError):
        return Fact(TOPIC, name, False, f"{where}, not running", remedy)


def _postgres_version() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        return str(cursor.fetchone()[0])


def _redis_version() -> str:
    with redis.Redis.from_url(settings.REDIS_SERVER_URL, socket_timeout=2) as client:
        about = client.info("server")
        # Valkey states the version of Redis that it is compatible with beside its own.
        return str(about.get("valkey_version") or about["redis_version"])


def _workers() -> list[Fact]:
    """List the workers that measure, and which of them hold more of the site than a token for their queue."""
    try:
        alive = [row for row in Runner.objects.order_by("name") if row.is_alive]
    except DatabaseError:
        return [Fact(WORKERS, "workers", False, "unknown while PostgreSQL does not answer", START)]
    return [_worker(row) for row in alive] or [Fact(WORKERS, "workers", False, "none has been heard of", START)]


def _worker(row: Runner) -> Fact:
    access = row.facts.get("access")
    if access != DATABASE:
        return Fact(WORKERS, row.name, True, f"reaches the site by {access or 'a spool'}")
    if not settings.DATABASE_URL:
        return Fact(WORKERS, row.name, True, "runs as the site's own user, with the embedded database")
    remedy = "start it with `python -m runners work-site` (docs/runners.md)"
    return Fact(
        WORKERS, row.name, False, "holds the password of the whole database, and needs a token only", remedy
    )


def _providers() -> list[Fact]:
    """List who answers questions, without asking anybody: that costs money, and the provider's page has a button for
    it.
    """
    always = Fact(PROVIDERS, "inbox, replay", True, "people and recorded answers; need no key")
    try:
        rows = list(Provider.objects.enabled().order_by("team", "name"))
    except DatabaseError:
        return [always, Fact(PROVIDERS, "model servers", False, "unknown while PostgreSQL does not answer", START)]
    if not rows:
        return [always, Fact(PROVIDERS, "model servers", False, "none", "add one on the providers page")]
    servers = [
        Fact(PROVIDERS, row.name, True, f"{row.base_url} {row.default_model}, team {row.team}") for row in rows
    ]
    return [always, *servers]

"""Make a fresh installation for a benchmark, with PostgreSQL, Redis, tables and a team, and remove it at the end.

Django may be imported only inside it, for its settings read the folder.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelsci_site.services.var import Var
    from optimizer.models import Run

ROOT = Path(__file__).resolve().parent.parent
QUEUE = "bench.cpu"
PROBLEM = "softmax_rows"


@contextmanager
def folder(environment: Mapping[str, str]) -> Iterator[Var]:
    """Set up Django on an empty folder, with nothing running yet. `environment` is the installation's, and its
    workers'."""
    with tempfile.TemporaryDirectory(prefix="kernelsci-bench-") as root:
        for name in ("DATABASE_URL", "REDIS_URL"):
            os.environ.pop(name, None)
        os.environ |= {"KERNELSCI_VAR": root, "DJANGO_SETTINGS_MODULE": "kernelsci_site.settings", **environment}
        import django

        django.setup()
        from django.conf import settings

        yield settings.VAR


@contextmanager
def bare_postgres() -> Iterator[None]:
    """Run PostgreSQL with a database and no tables."""
    from kernelsci_site.services.embedded import running_servers

    with folder({}) as var, running_servers(var, redis=False):
        from django.db import connections

        try:
            yield
        finally:
            connections.close_all()


@contextmanager
def servers(environment: Mapping[str, str]) -> Iterator[Var]:
    """Set up the same with both servers running and the tables made."""
    from django.db import connections

    from kernelsci_site.services.embedded import running_servers

    with folder(environment) as var, running_servers(var):
        migrate()
        try:
            yield var
        finally:
            connections.close_all()


def migrate() -> None:
    """Create tables, targets, shipped problems, and the team that people start with."""
    from django.core.management import call_command

    from optimizer.actions.demo import do_make_default_team
    from optimizer.actions.problem import do_sync_shipped_problems
    from optimizer.actions.target import do_sync_targets

    call_command("migrate", interactive=False, verbosity=0)
    do_make_default_team()
    do_sync_targets()
    do_sync_shipped_problems()


def start_run(title: str, evaluations: int, **changes: object) -> Run:
    """Start a tuning run on the processor; `changes` are fields of `NewRun`."""
    from optimizer.actions.run import NewRun, do_start_run
    from optimizer.models import Problem, Target, Team
    from optimizer.queries.budgets import Budget

    wanted: dict[str, object] = {
        "team": Team.objects.get(),
        "title": title,
        "problem_version": Problem.objects.get(slug=PROBLEM).latest(),
        "target": Target.objects.get(key="cpu"),
        "strategy": "tune",
        "settings": {"confirm": False},
        "budget": Budget(evaluations=evaluations),
    }
    return do_start_run(None, NewRun(**(wanted | changes)))  # type: ignore[arg-type]


def provenance(seed: int | None = None) -> str:
    """Return date, machine, commit and seed, as a report begins."""
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    load = os.getloadavg()[0]
    parts = [
        f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC",
        f"commit {asked.stdout.strip() or 'unknown'}",
        f"{os.cpu_count()} cores {platform.machine()}, load {load:.1f}",
        *([f"seed {seed}"] if seed is not None else []),
    ]
    return ", ".join(parts)

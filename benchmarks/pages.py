"""Measure the server time of the pages on a database as large as years of use make it.

    DATABASE_URL=postgresql://…/scale python -m benchmarks.pages            # after manage.py load_scale there

Every page is asked for through Django with all its middleware, by a member of the team who is no administrator
(whose queries are the dearest: what they may see is looked up each time). Addresses differ from request to request.
Reports the median and the 95th percentile of the server's time, the median of its own processor time (without
PostgreSQL's, and blind to other load on the machine), that of PostgreSQL's process for this connection (`db_ms`, where
it runs here, on Linux), the 95th percentile of both together (`busy_p95`: what a request takes where nothing else asks
for the processors) and the number of queries; fails where p95 is above the goal.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kernelsci_site.settings")

import django

django.setup()  # what follows needs the apps

from django.conf import settings  # noqa: E402
from django.db import connection  # noqa: E402
from django.test import Client  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402

from kernelsci_site.garbage import freeze_loaded_objects  # noqa: E402
from optimizer.management.commands.load_scale import TEAM  # noqa: E402
from optimizer.models import (  # noqa: E402
    Campaign,
    Kernel,
    LlmCall,
    Measurement,
    Membership,
    Run,
    Runner,
    Team,
    TeamRole,
    User,
)
from optimizer.synthetic.rows import WORKER  # noqa: E402

GOAL_MS = 150.0
NAMES = ("p50_ms", "p95_ms", "cpu_ms", "db_ms", "busy_p95", "queries", "kib")
WORDS = (
    "prefetch",
    "bank conflicts",
    "vector load",
    "swizzle",
    "synthetic kernel 77",
    "lane_23",
    "unroll tree",
    "scale_42",
)
STATES = ("finished", "failed", "stopped", "paused", "active")
PROBLEMS = ("softmax_rows", "layernorm_residual", "matmul_bias_gelu", "fp8_block_gemm")


def main() -> int:
    """Measure all pages; 1 where one is slower than the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=60, help="of each page, after five to warm up")
    parser.add_argument("--only", action="append", help="names of pages")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    settings.ALLOWED_HOSTS = ["testserver"]
    client = member()
    freeze_loaded_objects()  # as kernelsci_site/asgi.py does
    rows = [measure(client, name, address, options.requests) for name, address in _pages().items()
            if not options.only or name in options.only]  # fmt: skip
    print(json.dumps(rows) if options.json else _table(rows))
    return int(any(row["p95_ms"] > GOAL_MS for row in rows))


def measure(client: Client, name: str, address: Callable[[], str], requests: int) -> dict[str, Any]:
    """Measure one page: times in ms, queries of the last request, bytes of its body."""
    times, spent, asked = [], [], []
    for n in range(requests + 5):
        where = address()
        began, worked, queried = time.perf_counter(), time.process_time(), database_cpu_s()
        answer = client.get(where)
        body = answer.getvalue()
        times.append((time.perf_counter() - began) * 1000)
        spent.append((time.process_time() - worked) * 1000)
        asked.append((database_cpu_s() - queried) * 1000)
        if answer.status_code != 200:
            raise SystemExit(f"{where} answered {answer.status_code}")
        times, spent, asked = (times, spent, asked) if n >= 5 else ([], [], [])
    with CaptureQueriesContext(connection) as queries:
        client.get(where)
    return {
        "page": name,
        "p50_ms": round(statistics.median(times), 1),
        "p95_ms": round(_p95(times), 1),
        "cpu_ms": round(statistics.median(spent), 1),
        "db_ms": round(statistics.median(asked), 1),
        "busy_p95": round(_p95([ours + its for ours, its in zip(spent, asked, strict=True)]), 1),
        "queries": len(queries),
        "kib": round(len(body) / 1024, 1),
    }


def database_cpu_s() -> float:
    """Return the seconds that PostgreSQL's process for this connection has computed, or 0 where that is unknown."""
    connection.ensure_connection()
    try:
        return int(Path(f"/proc/{connection.connection.info.backend_pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError):
        return 0.0


def _pages() -> dict[str, Callable[[], str]]:
    rng = random.Random(1)
    runs = list(
        Run.objects.filter(team__slug=TEAM, best_kernel__isnull=False).order_by("pk").values_list("pk", flat=True)
    )
    if not runs:
        raise SystemExit("no synthetic runs here: manage.py load_scale first")
    largest = list(
        Run.objects.filter(team__slug=TEAM).order_by("-spent_evaluations").values_list("pk", flat=True)[:2]
    )
    empty = Run.objects.filter(team__slug=TEAM, spent_evaluations=0).values_list("pk", flat=True)[0]

    runner = Runner.objects.get(name=WORKER).pk

    def kernel() -> str:
        run = rng.choice(runs)
        return f"/runs/{run}/kernels/{rng.randrange(Kernel.objects.filter(run=run).count())}/"

    def call() -> str:
        run = rng.choice(runs)
        known = LlmCall.objects.filter(run=run).order_by("-pk").values_list("pk", flat=True).first()
        return f"/runs/{run}/calls/{known}/" if known else f"/runs/{run}/calls/"

    return {
        "home": lambda: "/",
        "new run": lambda: f"/runs/new/?problem={rng.choice(PROBLEMS)}",
        "runs, newest": lambda: f"/runs/?page={rng.randint(1, 20)}",
        "runs, filtered": lambda: f"/runs/?problem={rng.choice(PROBLEMS)}&state={rng.choice(STATES)}&sort=-best",
        "runs, by words": lambda: f"/runs/?q=run+{rng.randint(1, 999)}",
        "run": lambda: f"/runs/{rng.choice(runs)}/",
        "run of 5,000 kernels": lambda: f"/runs/{largest[0]}/?sort=-speedup&page={rng.randint(1, 50)}",
        "run of none": lambda: f"/runs/{empty}/",
        "kernel": kernel,
        "diff": lambda: f"{kernel()}diff/?against=parent",
        "hypotheses": lambda: f"/runs/{rng.choice(runs)}/hypotheses/",
        "hypotheses of 5,000": lambda: f"/runs/{largest[0]}/hypotheses/",
        "calls": lambda: f"/runs/{rng.choice(runs)}/calls/",
        "calls of 5,000": lambda: f"/runs/{largest[0]}/calls/?page={rng.randint(1, 40)}",
        "call": call,
        "plan": lambda: f"/runs/{rng.choice(runs)}/plan/",
        "discussion": lambda: f"/runs/{rng.choice(runs)}/discussion/",
        "runners": lambda: "/runners/",
        "runner": lambda: f"/runners/{runner}/",
        "problem": lambda: f"/problems/{rng.choice(PROBLEMS)}/",
        "problems": lambda: "/problems/",
        "inbox": lambda: "/inbox/",
        "notifications": lambda: "/notifications/",
        "compare 8": lambda: "/runs/compare/?" + "&".join(f"run={run}" for run in rng.sample(runs, 8)),
        "search": lambda: f"/search/?q={rng.choice(WORDS)}",
        "lineage data of 2,000": lambda: f"/runs/{largest[1]}/lineage/data/",
        "leaderboard": lambda: f"/leaderboards/{rng.choice(PROBLEMS)}/cpu/",
        "leaderboards": lambda: "/leaderboards/",
        **_campaign_pages(rng),
        "API, runs": lambda: f"/api/v1/runs?limit=100&problem={rng.choice(PROBLEMS)}",
        "API, events": lambda: f"/api/v1/runs/{largest[0]}/events?after={rng.randint(0, 4000)}&limit=500",
    }


def _campaign_pages(rng: random.Random) -> dict[str, Callable[[], str]]:
    campaign = Campaign.objects.filter(team__slug=TEAM).order_by("pk").first()
    if campaign is None:
        return {}
    page = f"/campaigns/{campaign.pk}/"
    return {
        "campaigns": lambda: "/campaigns/",
        "campaign of 3,000 runs": lambda: page,
        "its runs": lambda: f"{page}runs/?page={rng.randint(1, 5)}",
        "its fast_p": lambda: f"{page}chart/fast/",
        "its bands": lambda: f"{page}chart/bands/?axis=tokens",
        "its report, JSON": lambda: f"{page}report.json",
    }


def member() -> Client:
    """Return a browser of a member of the synthetic team."""
    user, _ = User.objects.get_or_create(username="benchmark-member")
    team = Team.objects.get(slug=TEAM)
    Membership.objects.get_or_create(team=team, user=user, defaults={"role": TeamRole.OPERATOR})
    client = Client()
    client.force_login(user)
    return client


def _p95(times: list[float]) -> float:
    return statistics.quantiles(times, n=20)[-1]


def _table(rows: list[dict[str, Any]]) -> str:
    runs, kernels, samples = Run.objects.count(), Kernel.objects.count(), Measurement.objects.count()
    head = f"{runs:,} runs, {kernels:,} kernels, {samples:,} measurements; {platform.machine()}, {os.cpu_count()} cores"
    lines = [f"{row['page']:<24}" + "".join(f" {row[name]:>8}" for name in NAMES) for row in rows]
    slow = [row["page"] for row in rows if row["p95_ms"] > GOAL_MS]
    verdict = f"slower than {GOAL_MS:.0f} ms: {', '.join(slow)}" if slow else f"all within {GOAL_MS:.0f} ms"
    heading = f"{'page':<24}" + "".join(f" {name:>8}" for name in NAMES)
    return "\n".join([head, heading, *lines, verdict])


if __name__ == "__main__":
    sys.exit(main())

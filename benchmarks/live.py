"""Measure how long an event takes to the sockets of many people at one run, and whether one is lost or duplicated.

    python -m benchmarks.live                 # starts the site on a fresh folder, measures, stops it
    python -m benchmarks.live --sockets 50 --seconds 10

A real Daphne, PostgreSQL and Redis, as `manage.py up` runs them. A worker's process records events through the same
`record` as every run does; the sockets are opened as a browser opens them, with the cookie of somebody who is signed
in. Half-way, half of the sockets are cut without a goodbye and reconnect with the pauses of static/js/live.js and the
last number they hold. Delay is from the call of `record` to the message in the client, on the clock of one machine;
what a reconnected socket catches up on is counted for loss and doubles but, being late on purpose, not for the delay.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

GOAL_MS = 250.0
OPEN_WITHIN_S = 10.0
ROOT = Path(__file__).resolve().parent.parent
UP_WITHIN_S = 120.0


PREPARE = """
from django.conf import settings
from django.test import Client
from optimizer.actions.demo import do_start_demo
from optimizer.models import Run, User
run = do_start_demo()[0]
Run.objects.update(state="stopped")
run.refresh_from_db()
client = Client()
client.force_login(User.objects.filter(is_superuser=True).first())
name = settings.SESSION_COOKIE_NAME
print("PREPARED", run.pk, f"{name}={client.cookies[name].value}", run.last_seq)
"""


@dataclass
class Watcher:
    """Follow one socket over its whole life: the numbers it got and when they came (-1: caught up on late)."""

    last: int
    got: list[int] = field(default_factory=list)
    came_at: list[float] = field(default_factory=list)
    was_cut: bool = False
    catches_up: bool = False
    socket: ClientConnection | None = None

    def cut(self) -> None:
        """End the connection without a goodbye."""
        self.was_cut = True
        if self.socket is not None:
            self.socket.transport.abort()


@dataclass(frozen=True)
class Spent:
    """Hold the processor seconds of the web server, and of this process that stands for all the browsers."""

    server_s: float
    client_s: float


def main() -> int:
    """Measure; 1 where something was lost, doubled or late."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sockets", type=int, default=300)
    parser.add_argument("--rate", type=float, default=20.0, help="events a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--produce", nargs=4, metavar=("RUN", "RATE", "COUNT", "LOG"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.produce:
        produce(
            int(options.produce[0]), float(options.produce[1]), int(options.produce[2]), Path(options.produce[3])
        )
        return 0
    with site(options.port) as (address, environment):
        run, cookie, first = prepare(environment)
        return asyncio.run(measure(options, address, environment, run, cookie, first))


async def measure(
    options: argparse.Namespace, address: str, environment: dict[str, str], run: int, cookie: str, first: int
) -> int:
    """Open the sockets, let events happen, cut half of them, wait for the last event, tell."""
    count = round(options.rate * options.seconds)
    watchers = [Watcher(first) for _ in range(options.sockets)]
    sent: dict[int, float] = {}
    where = f"{address.replace('http', 'ws')}/ws/runs/{run}/"
    ready = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(watch(where, cookie, one, first + count, ready)) for one in watchers]
    for _ in watchers:
        await asyncio.wait_for(ready.acquire(), 300)
    before, mine = web_cpu_s(environment["KERNELSCI_VAR"]), time.process_time()
    with tempfile.NamedTemporaryFile() as log:
        command = [
            sys.executable,
            "-m",
            "benchmarks.live",
            "--produce",
            str(run),
            str(options.rate),
            str(count),
            log.name,
        ]
        producer = await asyncio.create_subprocess_exec(*command, env=environment, cwd=ROOT)
        await asyncio.sleep(options.seconds / 2)
        for one in watchers[: len(watchers) // 2]:
            one.cut()
        await producer.wait()
        await asyncio.wait(tasks, timeout=30)
        sent = {
            int(seq): float(at) for seq, at in (line.split() for line in Path(log.name).read_text().splitlines())
        }
    for task in tasks:
        task.cancel()
    spent = Spent(web_cpu_s(environment["KERNELSCI_VAR"]) - before, time.process_time() - mine)
    return tell(options, watchers, sent, spent)


async def watch(where: str, cookie: str, one: Watcher, until: int, ready: asyncio.Semaphore) -> None:
    """Hold a socket until event `until` has come; when cut, come back with the last number that was held."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import WebSocketException
    from websockets.typing import Origin

    headers = {"Cookie": cookie}
    await asyncio.sleep(random.random() * OPEN_WITHIN_S)
    origin = where.replace("ws://", "http://").split("/ws/")[0]
    failures = 0
    while one.last < until:
        try:
            async with connect(
                f"{where}?after={one.last}", additional_headers=headers, origin=Origin(origin), open_timeout=60,
                compression=None,
            ) as socket:  # fmt: skip
                failures, one.socket = 0, socket
                await listen(socket, one, until, ready)
        except (WebSocketException, OSError):
            failures += 1
        if one.last < until:
            one.catches_up = True
            await asyncio.sleep(min(15.0, 0.5 * 2**failures) * random.uniform(0.5, 1))


async def listen(socket: AsyncIterable[str | bytes], one: Watcher, until: int, ready: asyncio.Semaphore) -> None:
    """Take messages until the last event, or until the socket is cut. The first message says that it is heard."""
    is_first = True
    async for text in socket:
        now = time.time()
        if is_first:
            ready.release()
            is_first = False
        if not (numbers := numbers_in(str(text))):
            continue
        one.got += numbers  # the first message after a reconnection brings what was missed
        one.came_at += [-1.0 if one.catches_up else now] * len(numbers)
        one.last, one.catches_up = numbers[-1], False
        if one.last >= until:
            return


@lru_cache(maxsize=256)
def numbers_in(text: str) -> list[int]:
    """Return the numbers of the events in a message. The same text comes to hundreds of sockets: it is read once, or
    the one process that stands for hundreds of browsers would measure itself."""
    message = json.loads(text)
    return [event["seq"] for event in message["events"]] if message["kind"] == "events" else []


def web_cpu_s(folder: str) -> float:
    """Return the processor seconds that the web server of that folder has spent, whatever else loads the machine
    (Linux)."""
    spent = 0.0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            mine = folder.encode() in (process / "environ").read_bytes()
            if mine and b"daphne" in (process / "cmdline").read_bytes():
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                spent += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except OSError:
            continue
    return spent


def tell(options: argparse.Namespace, watchers: list[Watcher], sent: dict[int, float], spent: Spent) -> int:
    """Print the figures as a table, and return 0 where all goals are met."""
    wanted, came = sorted(sent), sum(len(one.got) for one in watchers)
    lost = sum(len(set(wanted) - set(one.got)) for one in watchers)
    doubled = sum(len(one.got) - len(set(one.got)) for one in watchers)
    disordered = sum(one.got != sorted(one.got) for one in watchers)
    delays = [(at - sent[seq]) * 1000 for one in watchers for seq, at in zip(one.got, one.came_at, strict=True)
              if at > 0 and seq in sent]  # fmt: skip
    span = max(sent.values()) - min(sent.values()) if sent else 0.0
    cuts = statistics.quantiles(delays, n=100) if len(delays) > 1 else [float("inf")] * 99
    rows = {
        "sockets": len(watchers),
        "events": f"{len(sent)} in {span:.1f} s ({len(sent) / span if span else 0:.1f} a second)",
        "messages measured": len(delays),
        "cut and back": sum(one.was_cut for one in watchers),
        "delay p50, ms": round(cuts[49], 1),
        "delay p95, ms": round(cuts[94], 1),
        "delay p99, ms": round(cuts[98], 1),
        "web server, CPU s": f"{spent.server_s:.1f} ({spent.server_s / max(1, came) * 1e6:.0f} µs an event and socket)",
        "all clients, CPU s": f"{spent.client_s:.1f}",
        "lost": lost,
        "doubled": doubled,
        "out of order": disordered,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    print("\n".join(f"{name:<20} {value}" for name, value in rows.items()))
    met = (
        not (lost or doubled or disordered)
        and cuts[94] <= GOAL_MS
        and len(sent) == round(options.rate * options.seconds)
    )
    print(f"goal (p95 {GOAL_MS:.0f} ms, nothing lost, nothing doubled): {'met' if met else 'missed'}")
    return int(not met)


def produce(run_id: int, rate: float, count: int, log: Path) -> None:
    """Record events of a run at an even rate, as a worker does; note when each was recorded."""
    import django

    django.setup()
    from django.db import transaction

    from optimizer.events.payloads import RunNoted
    from optimizer.events.record import record
    from optimizer.runs.locking import lock_run

    began = time.monotonic()
    with log.open("w") as noted:
        for n in range(count):
            time.sleep(max(0.0, began + n / rate - time.monotonic()))
            at = time.time()
            with transaction.atomic():
                event = record(lock_run(run_id), RunNoted(text=f"benchmark event {n}"))
            print(event.seq, at, file=noted, flush=True)
    time.sleep(1.0)  # announcements leave from a thread of their own


def prepare(environment: dict[str, str]) -> tuple[int, str, int]:
    """Return a run to look at, the cookie of somebody who may, and the number of its newest event. The run is stopped:
    nothing but the benchmark writes its events."""
    told = subprocess.run([sys.executable, "manage.py", "shell", "-v0", "-c", PREPARE], env=environment, cwd=ROOT,
                          capture_output=True, text=True, check=True)  # fmt: skip
    line = next(line for line in told.stdout.splitlines() if line.startswith("PREPARED"))
    _, run, cookie, last = line.split()
    return int(run), cookie, int(last)


@contextmanager
def site(port: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Run `manage.py up` on a folder of its own; yield its address and environment."""
    with tempfile.TemporaryDirectory(prefix="kernelsci-live-") as folder:
        environment = os.environ | {"KERNELSCI_VAR": folder, "DJANGO_SETTINGS_MODULE": "kernelsci_site.settings"}
        process = subprocess.Popen([sys.executable, "manage.py", "up", "--port", str(port)], env=environment, cwd=ROOT,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
        try:
            yield _address(process), environment
        finally:
            process.terminate()
            process.wait(60)


def _address(process: subprocess.Popen[str]) -> str:
    deadline = time.monotonic() + UP_WITHIN_S
    while time.monotonic() < deadline and (line := (process.stdout.readline() if process.stdout else "")):
        if "answers at" in line:
            return line.split("answers at")[1].strip().rstrip("/")
    raise SystemExit("the site did not come up")


if __name__ == "__main__":
    sys.exit(main())

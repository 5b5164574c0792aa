"""Measure more workers, and workers on other machines.

    python -m benchmarks.scale                  # 1, 2, 4, 8 measuring workers on one machine, jobs that sleep
    python -m benchmarks.scale --hosts          # two hosts with addresses of their own, one is cut off half-way (root)

Throughput is jobs over the time from the first claim to the last result, by the database's clock. The goal is 0.9 of
linear growth. With --hosts PostgreSQL and Redis listen on a switch; the cable of one host is pulled while it has jobs
in hand: its jobs are done by the other under a higher fence, and what it measured meanwhile does not count.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from benchmarks import claims, installation
from benchmarks.hosts import NETWORK, SERVER, Host, hosts

if TYPE_CHECKING:
    from kernelsci_site.services.part import Child, Part
    from kernelsci_site.services.var import Var

GOAL = 0.9
LEASE_S = 8.0
REDIS_PORT = 6399


def main() -> int:
    """Measure and print; 1 where the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--jobs", type=int, default=10, help="a worker")
    parser.add_argument("--sleep", type=float, default=2.0, help="seconds a job")
    parser.add_argument("--hosts", action="store_true")
    options = parser.parse_args()
    environment = {"KERNELSCI_EVALUATE": "benchmarks.sleeping.evaluate", "KERNELSCI_SLEEP_S": str(options.sleep)}
    print(installation.provenance())
    if options.hosts:
        return two_hosts(environment)
    with installation.servers(environment) as var:
        runs = [installation.start_run(f"scale {n}", 1).pk for n in range(claims.RUNS)]
        rates = {count: throughput(var, count, options.jobs, runs) for count in options.workers}
    return _judge(rates, options.sleep)


def _judge(rates: dict[int, float], sleep_s: float) -> int:
    first = min(rates)
    shares = {count: rate / (rates[first] * count / first) for count, rate in rates.items()}
    for count, rate in rates.items():
        print(f"{count} workers: {rate:.2f} jobs a second, {shares[count]:.2f} of linear, "
              f"{rate * sleep_s / count:.2f} of what sleeping alone allows")  # fmt: skip
    met = min(shares.values()) >= GOAL
    print(f"goal ({GOAL} of linear): {'met' if met else 'missed'}")
    return int(not met)


def throughput(var: Var, count: int, jobs: int, runs: list[int]) -> float:
    """Return the jobs per second of so many workers, all started and idle before the jobs come."""
    from django.db.models import Max, Min

    from kernelsci_site.services.site_parts import worker_part
    from optimizer.models import Job

    parts = [worker_part(f"bench.{n}", [installation.QUEUE], 1, installation.ROOT) for n in range(count)]
    with started(parts, var):
        wait_for(lambda: _idle_workers() >= count, 180)
        claims.fill(count * jobs, runs)
        ring(count)
        wait_for(lambda: not Job.objects.exclude(state="done").exists(), 600)
    span = Job.objects.aggregate(first=Min("started_at"), last=Max("finished_at"))
    _forget_workers()
    return float(count * jobs / (span["last"] - span["first"]).total_seconds())


def two_hosts(environment: dict[str, str]) -> int:
    """Have two hosts share a queue; cut one off and bring it back. 1 where a job was lost or done twice."""
    with ExitStack() as stack:
        machines = stack.enter_context(hosts(2))
        var = stack.enter_context(installation.folder({**environment, "KERNELSCI_LEASE_S": str(LEASE_S)}))
        stack.enter_context(started(network_servers(var), var))
        installation.migrate()
        claims.fill(40, [installation.start_run(f"hosts {n}", 1).pk for n in range(claims.RUNS)])
        workers = [on_host(host, number, var) for host in machines for number in range(2)]
        stack.enter_context(started(workers, var))
        try:
            return _cut_and_tell(machines[1], var)
        finally:
            from django.db import connections

            connections.close_all()


def _cut_and_tell(victim: Host, var: Var) -> int:
    from optimizer.models import Evaluation, Job

    on_victim = Job.objects.filter(worker__endswith=f"@{victim.name}")
    done = Job.objects.filter(state="done")
    wait_for(lambda: _rung() and done.count() >= 8 and on_victim.filter(state="running").count() >= 2, 180)
    done_before = Job.objects.filter(state="done").count()
    held = set(on_victim.filter(state="running").values_list("pk", flat=True))
    victim.cut_off()
    cut_at = time.monotonic()
    wait_for(lambda: _rung() and not Job.objects.filter(pk__in=held).exclude(state="done").exists(), 180)
    recovered_s = time.monotonic() - cut_at
    victim.reconnect()
    wait_for(lambda: _rung() and not Job.objects.exclude(state="done").exists(), 300)
    time.sleep(2 * LEASE_S)  # what the host still has to hand in comes now
    again = Job.objects.filter(pk__in=held, fence__gte=2).exclude(worker__endswith=f"@{victim.name}").count()
    after = on_victim.filter(started_at__isnull=False).exclude(pk__in=held).count()
    twice = Evaluation.objects.filter(job__state="done").exclude(state="done").count()
    print(f"two hosts, {victim.address} cut off with {len(held)} jobs in hand after {done_before} of 40 were done")
    print(
        f"{again} of its {len(held)} jobs were done by the other host, the last {recovered_s:.1f} s after the cut "
        f"(lease {LEASE_S:.0f} s)"
    )
    print(f"jobs that it did before the cut or after it came back: {after}")
    print(f"lost: {Job.objects.exclude(state='done').count()}, without its one result: {twice}")
    return int(again != len(held) or twice > 0 or Job.objects.exclude(state="done").exists())


def network_servers(var: Var) -> list[Part]:
    """Return the parts of PostgreSQL and Redis as always, listening on the switch as well, which only we use."""
    from kernelsci_site.services.embedded import server_parts

    postgres, redis = server_parts(var)
    listening = ["-c", f"listen_addresses={SERVER}"]
    prepare = postgres.prepare

    def prepare_and_let_in() -> None:
        prepare()
        rules = var.root / "postgres" / "pg_hba.conf"
        rules.write_text(rules.read_text() + f"host all all {NETWORK}.0/24 scram-sha-256\n")

    # Options behind the configuration's name replace its own; socket and password stay.
    options = ["--port", str(REDIS_PORT), "--bind", SERVER]
    return [
        replace(postgres, command=[*postgres.command, *listening], prepare=prepare_and_let_in),
        replace(redis, command=[*redis.command, *options]),
    ]


def on_host(host: Host, number: int, var: Var) -> Part:
    """Return a measuring worker on that host, which reaches the servers over the network alone."""
    from kernelsci_site.services.site_parts import worker_part

    secret = var.secret("postgres")
    url = f"postgresql://kernelsci:{secret}@{SERVER}/kernelsci?connect_timeout=3&tcp_user_timeout=4000"
    redis = f"redis://:{quote(var.secret('redis'), safe='')}@{SERVER}:{REDIS_PORT}/0"
    own = {"DATABASE_URL": url, "REDIS_URL": redis}
    part = worker_part(f"bench.{number}", [installation.QUEUE], 1, installation.ROOT)
    words = [word.replace("@%h", f"@{host.name}") for word in part.command]
    return replace(part, name=f"{host.name}.{number}", command=[*host.prefix, *words], environment=own)


@contextmanager
def started(parts: list[Part], var: Var) -> Iterator[list[Child]]:
    """Run the parts, with their output in the log folder, and stop them together at the end."""
    children: list[Child] = []
    with ExitStack() as stack:
        for part in parts:
            log = stack.enter_context((var.folder("log") / f"{part.name}.log").open("ab"))
            children.append(part.start(log))
        try:
            for child in children:
                child.wait_until_ready()
            yield children
        finally:
            for child in reversed(children):
                child.ask_to_stop()
            for child in reversed(children):
                child.finish()


def ring(times: int) -> None:
    """Notify the workers, as the sweep does."""
    from runners.dispatch.celery import notify_worker

    for _ in range(times):
        notify_worker(installation.QUEUE)


def wait_for(what: Callable[[], object], patience_s: float) -> None:
    """Return once it is so. Raises SystemExit after `patience_s`."""
    deadline = time.monotonic() + patience_s
    while not what():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {patience_s:.0f} s")
        time.sleep(0.25)


def _rung() -> bool:
    ring(1)
    return True


def _idle_workers() -> int:
    from optimizer.models import Runner

    return Runner.objects.count()


def _forget_workers() -> None:
    from optimizer.models import Runner

    Runner.objects.all().delete()


if __name__ == "__main__":
    sys.exit(main())

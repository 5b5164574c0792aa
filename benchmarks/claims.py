"""Measure how fast a deep queue is claimed: 1,000 waiting jobs, several clients, the real claim path.

    python -m benchmarks.claims                     # 1, 2 and 4 clients
    python -m benchmarks.claims --clients 4 --profile

Each client is a process with a worker's `DatabaseJobSource`; a claim is the conditional update, the transaction that
marks the evaluation as begun with its event, and the decoding of the whole spec. A goal is met when some number of
clients claims 200 a second; PostgreSQL syncs to disk as installed.
"""

from __future__ import annotations

import argparse
import cProfile
import multiprocessing
import pstats
import sys
import time
from multiprocessing.synchronize import Barrier

from benchmarks import installation

GOAL_PER_S = 200.0
RUNS = 8


def main() -> int:
    """Measure and print; 1 where the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--profile", action="store_true", help="where one client's time goes")
    options = parser.parse_args()
    print(installation.provenance())
    with installation.servers({}):
        runs = [installation.start_run(f"claims {n}", 1).pk for n in range(RUNS)]
        rates = [measure(count, options.jobs, runs, options.profile) for count in options.clients]
    met = max(rates) >= GOAL_PER_S
    print(f"goal ({GOAL_PER_S:.0f} claims a second): {'met' if met else 'missed'}")
    return int(not met)


def measure(clients: int, jobs: int, runs: list[int], profile: bool) -> float:
    """Return the claims per second of so many concurrent processes. The clock runs from the first claim to the last."""
    fill(jobs, runs)
    context = multiprocessing.get_context("spawn")
    barrier, spans = context.Barrier(clients), context.SimpleQueue()
    processes = [
        context.Process(target=client, args=(f"client-{n}", barrier, spans, profile)) for n in range(clients)
    ]
    for process in processes:
        process.start()
    told = [spans.get() for _ in processes]
    for process in processes:
        process.join()
    span_s = max(end for _, _, end in told) - min(begin for _, begin, _ in told)
    claimed = sum(count for count, _, _ in told)
    assert claimed == jobs, f"{claimed} claims of {jobs} jobs"
    print(f"{clients} clients: {claimed} jobs in {span_s:.2f} s, {claimed / span_s:.0f} a second")
    return float(claimed / span_s)


def client(name: str, barrier: Barrier, spans: multiprocessing.SimpleQueue[tuple[int, float, float]],
           profile: bool) -> None:  # fmt: skip
    """Claim until nothing is left."""
    import django

    django.setup()
    from optimizer.job_source import DatabaseJobSource

    source = DatabaseJobSource()
    source.claim("nobody's", name)  # connects
    profiler = cProfile.Profile()
    barrier.wait()
    begin, count = time.monotonic(), 0
    if profile:
        profiler.enable()
    while source.claim(installation.QUEUE, name) is not None:
        count += 1
    spans.put((count, begin, time.monotonic()))
    if profile:
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(18)
    time.sleep(1.0)  # announcements leave from a thread of their own


def fill(jobs: int, runs: list[int]) -> None:
    """Store waiting jobs, spread over the runs, and nothing else in the queue."""
    from django.db import connection
    from django.db.models import Max

    from optimizer.models import Evaluation, Job, Kernel, Run
    from optimizer.runs.dispatch import _spec, with_spec

    Job.objects.all().delete()
    some = list(Run.objects.filter(pk__in=runs))
    most = Kernel.objects.aggregate(most=Max("number"))["most"] or 0
    kernels = Kernel.objects.bulk_create(
        Kernel(run=some[n % RUNS], number=most + 1 + n, key=f"k{most + n}", author_kind="tuner", language="cpp",
               source=f"// {n}\n" * 150, content_hash=f"{n:064d}")
        for n in range(jobs)
    )  # fmt: skip
    evaluations = Evaluation.objects.bulk_create(
        Evaluation(kernel=kernel, target=kernel.run.target, first_of=kernel, effort="full") for kernel in kernels
    )
    Job.objects.bulk_create(
        with_spec(Job(evaluation=evaluation, queue=installation.QUEUE, dispatcher="spool"),
                  _spec(evaluation.kernel.run, evaluation.kernel, evaluation), evaluation.kernel.run.problem_version_id)
        for evaluation in evaluations
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


if __name__ == "__main__":
    sys.exit(main())

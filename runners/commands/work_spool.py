"""Process the jobs of a spool directory on this machine: `python -m runners work-spool DIR`."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
from pathlib import Path

from runners.dispatch.card import FILES, card_of
from runners.dispatch.spool import Spool, SpoolDispatcher, SpoolError
from runners.dispatch.spool_source import SpoolSource
from runners.harness import evaluate
from runners.job import Effort
from runners.signing.keyring import Role
from runners.targets import UnknownTarget, canonical
from runners.worker import work_once

# Short against an evaluation, long for a network file system.
POLL_S = 2.0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("work-spool", help="work the jobs of a spool directory on this machine")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--target", default="cpu", help="what this machine is, for its card (default: %(default)s)")
    parser.add_argument("--once", action="store_true", help="end when no job is left instead of waiting for more")
    parser.add_argument(
        "--idle-exit", type=float, metavar="SECONDS", help="end after this many seconds without a job"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Process jobs until told to end. Return 1 if the directory can't be used."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # how Slurm announces the end of an allocation
    try:
        done = _work(arguments)
    except (SpoolError, UnknownTarget) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped on request; the current job was returned to the queue")
        return 0
    print(f"{done} jobs done")
    return 0


def _work(arguments: argparse.Namespace) -> int:
    target = canonical(arguments.target)
    spool = Spool(arguments.directory)
    spool.announce(Role.RUNNER)
    source = SpoolSource(spool, target)
    try:
        return _work_until_told(source, target, 0.0 if arguments.once else arguments.idle_exit)
    except KeyboardInterrupt:
        source.leave()
        raise


def _work_until_told(source: SpoolSource, target: str, patience_s: float | None) -> int:
    queue = SpoolDispatcher().queue_for(target, Effort.FULL)
    card = card_of(f"spool@{socket.gethostname()}-{os.getpid()}", target, (queue,), FILES)
    done, idle_since = 0, time.monotonic()
    said: set[str] = set()
    while True:
        draining = source.check_in(card)
        if not draining and work_once(source, queue, card.name, evaluate):
            done, idle_since = done + 1, time.monotonic()
            print(f"{done} jobs done", flush=True)
        elif strangers := set(source.spool.strangers) - said:
            said |= strangers
            print("\n".join(map(not_trusted, sorted(strangers))), file=sys.stderr, flush=True)
        elif patience_s is not None and time.monotonic() - idle_since >= patience_s:
            return done
        else:
            time.sleep(POLL_S)


def not_trusted(public: str) -> str:
    """Return what to do about jobs of a site that is not trusted."""
    return (
        f"jobs are left alone: they are signed by a site that is not trusted here. Compare {public} with what "
        f"`manage.py keys` shows there, then: python -m runners keys trust site {public}"
    )

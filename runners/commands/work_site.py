"""Process the jobs of one of the site's queues on this machine: `python -m runners work-site ADDRESS`."""

from __future__ import annotations

import argparse
import logging
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

from runners.commands.work_spool import not_trusted
from runners.dispatch.card import TOKEN, card_of
from runners.dispatch.celery import BENCH_PREFIX, BUILD_QUEUE
from runners.dispatch.site_source import SiteError, SiteRefusalError, SiteSource, poster
from runners.harness import evaluate
from runners.job_source import RunnerCard
from runners.problems.uploading import Inspection, inspect
from runners.sandbox import SandboxError
from runners.signing.keyring import KeyFileError, Keyring, Role
from runners.targets import UnknownTarget, canonical
from runners.worker import work_once

# Short against an evaluation, and a request costs the site some milliseconds.
POLL_S = 0.5
AWAY_PAUSE_S = 5.0
CHECK_IN_EVERY_S = 15.0
logger = logging.getLogger(__name__)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "work-site", help="run jobs from one of the site's queues, with a token for that queue"
    )
    parser.add_argument("site", help="the site's address, such as https://kernels.example.org")
    parser.add_argument(
        "--queue", default="bench.cpu", help="the queue that the token is for (default: %(default)s)"
    )
    parser.add_argument("--token-file", type=Path, required=True, help="the file with the token")
    parser.add_argument(
        "--site-key", metavar="KEY", help="trust this public key of the site, or the one in this file"
    )
    parser.add_argument("--name", default=socket.gethostname(), help="this worker's name, unique at the site")
    parser.add_argument("--once", action="store_true", help="end when no job is left instead of waiting for more")
    parser.add_argument(
        "--allow-http", action="store_true", help="send the token without TLS, in a private network"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Process jobs until told to end. Return 1 if the site, its key or the token cannot be used."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    told = threading.Event()
    # As Celery does: finish the current job, then end.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    try:
        print(f"{_work(arguments, told)} jobs done")
    except (SiteError, KeyFileError, UnknownTarget, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _work(arguments: argparse.Namespace, told: threading.Event) -> int:
    keyring = Keyring()
    if arguments.site_key:
        keyring.trust(Role.SITE, arguments.site_key)
    token = arguments.token_file.read_text().strip()
    source = SiteSource(poster(arguments.site, token, allow_http=arguments.allow_http), keyring)
    name = f"{arguments.queue}@{arguments.name}"
    if not _may_begin(source, keyring, name, told):
        return 0
    if arguments.queue.startswith(BENCH_PREFIX):
        card = card_of(name, canonical(arguments.queue.removeprefix(BENCH_PREFIX)), (arguments.queue,), TOKEN)
        source.check_in(card)
        threading.Thread(target=_check_in, args=(source, card, told), name="check-in", daemon=True).start()
    return _work_until_told(source, arguments.queue, name, told, once=arguments.once)


def _may_begin(source: SiteSource, keyring: Keyring, name: str, told: threading.Event) -> bool:
    """Wait for the site and register our key there. Return False if we were told to end before it answered.

    Raises SiteRefusalError for a site whose jobs are not trusted: each would be refused, which ends it for everybody.
    The site raises it for a token whose results another key signs.
    """
    while not told.is_set():
        try:
            public = source.site_key()
            if not keyring.trusts(Role.SITE, public):
                raise SiteRefusalError(not_trusted(public))
            source.register(name)
        except SiteRefusalError:
            raise
        except SiteError as error:
            logger.warning("%s", error)
            told.wait(AWAY_PAUSE_S)
        else:
            return True
    return False


def _check_in(source: SiteSource, card: RunnerCard, told: threading.Event) -> None:
    while not told.wait(CHECK_IN_EVERY_S):
        with suppress(SiteError):
            source.check_in(card)


def _work_until_told(source: SiteSource, queue: str, name: str, told: threading.Event, *, once: bool) -> int:
    done = 0
    while not told.is_set():
        try:
            worked = work_once(source, queue, name, evaluate) or _inspect_next(source, queue, name)
        except SiteRefusalError:
            raise
        except SiteError as error:
            logger.warning("%s", error)
            told.wait(AWAY_PAUSE_S)
            continue
        done += worked
        if not worked:
            if once:
                break
            told.wait(POLL_S)
    return done


def _inspect_next(source: SiteSource, queue: str, name: str) -> bool:
    """Inspect an uploaded problem, if this is a worker of the build queue and one waits."""
    claimed = source.next_upload(name) if queue == BUILD_QUEUE else None
    if claimed is None:
        return False
    held, upload = claimed
    try:
        inspection = inspect(upload)
    except SandboxError as error:
        inspection = Inspection((f"This machine cannot check problems: {error}",))
    source.finish_upload(held, inspection)
    return True

"""Hold the whole stack under the product's own supervisor, as chaos sees it: parts with processes, rows, a spool."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from django.db import Error as DatabaseError
from django.db import connection

from benchmarks.installation import ROOT, migrate
from kernelsci_site.services import supervisor as supervision
from kernelsci_site.services.console import Console
from kernelsci_site.services.embedded import server_parts
from kernelsci_site.services.part import Part
from kernelsci_site.services.site_parts import listen, web_part, worker_part
from kernelsci_site.services.supervisor import Keeper, Supervisor
from kernelsci_site.services.var import Var

T = TypeVar("T")
TARGETS = ("cpu", "gfx942")
SPOOL_MIB = 8


@dataclass
class World:
    """Hold what faults act upon. `later` holds what must happen at a time: a stopped process goes on, a disk is
    freed."""

    supervisor: Supervisor
    spool: Path
    address: tuple[str, int]
    random: random.Random
    later: list[threading.Timer] = field(default_factory=list)

    def keeper(self, name: str) -> Keeper:
        """Return the part of that name."""
        return next(keeper for keeper in self.supervisor.keepers if keeper.part.name == name)

    def keepers(self, prefix: str) -> list[Keeper]:
        """Return the parts of that kind."""
        return [keeper for keeper in self.supervisor.keepers if keeper.part.name.startswith(prefix)]

    def pid(self, prefix: str) -> int | None:
        """Return the first process of a living part of that kind, chosen by chance."""
        alive = [keeper.child.process.pid for keeper in self.keepers(prefix) if keeper.child and keeper.is_alive]
        return self.random.choice(alive) if alive else None

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        """Do something later, whatever happens meanwhile: from a thread, for we ourselves may wait for what stands
        still. `act` starts no part (the kernel ends a part with the thread that started it)."""
        timer = threading.Timer(seconds, act)
        timer.start()
        self.later.append(timer)

    @property
    def is_settled(self) -> bool:
        """Return whether everything that was to happen later has happened."""
        return not any(timer.is_alive() for timer in self.later)

    def tick(self, timeout_s: float = 0.1) -> None:
        """Let the supervisor do its work."""
        self.supervisor.pump(timeout_s)
        self.supervisor.tend()


def kill(pid: int | None, number: signal.Signals = signal.SIGKILL) -> bool:
    """Send a signal; False when there was nobody."""
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def children(pid: int) -> list[int]:
    """Return the child processes."""
    found: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(word) for word in listing.read_text().split()]
    return found


def ask(question: Callable[[], T], otherwise: T) -> T:
    """Return an answer from the database, or `otherwise` while it is away."""
    try:
        return question()
    except DatabaseError:
        connection.close()
        return otherwise


@contextmanager
def world(var: Var, seed: int, bench: int, port: int) -> Iterator[World]:
    """Start everything, and stop it at the end, whatever happened."""
    supervision.LONGEST_PAUSE_S = 1.0  # faults come faster here than any machine fails
    supervisor = Supervisor(Console(Path(os.devnull).open("w")), var.folder("log"))  # noqa: SIM115 - as long as we
    try:
        with spool_folder(var) as spool, listen("127.0.0.1", port) as listener:
            supervisor.wait_until_ready([supervisor.start(part) for part in server_parts(var)])
            migrate()
            connection.close()
            supervisor.wait_until_ready([supervisor.start(web_part(listener, ROOT, host_header="localhost"))])
            for part in workers(bench, spool):
                supervisor.start(part)
            yield World(supervisor, spool, listener.getsockname()[:2], random.Random(seed))
            connection.close()
    finally:
        connection.close()
        supervisor.stop()


def workers(bench: int, spool: Path) -> list[Part]:
    """Return timer, agents, builds, measuring workers of two targets, and both ends of a spool."""
    parts = [
        worker_part("timer", ["timer"], 1, ROOT, beats=True),
        worker_part("agents", ["agents"], 2, ROOT),
        worker_part("build", ["build"], 1, ROOT),
        *(worker_part(f"bench.cpu.{n}", ["bench.cpu"], 1, ROOT) for n in range(bench)),
        worker_part("bench.gfx942", ["bench.gfx942"], 1, ROOT),
    ]
    parts.append(
        _command("spool.sync", "manage.py", "spool", "sync", str(spool), "--target", "cpu", "--watch", "1")
    )
    parts.append(_command("spool.work", "-m", "tests.chaos.spool_worker", str(spool), "--target", "cpu"))
    return [replace(part, quiet=True) for part in parts]


def _command(name: str, *words: str) -> Part:
    return Part(name=name, command=[sys.executable, *words], abandon_signal=signal.SIGKILL, folder=ROOT)


@contextmanager
def spool_folder(var: Var) -> Iterator[Path]:
    """Yield a spool on a small file system of its own where we may mount one, else a plain folder."""
    from tests.chaos.disk import mounted

    with mounted(var.folder("spool"), SPOOL_MIB) as folder:
        yield folder

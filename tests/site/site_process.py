"""Drive `manage.py up` as a process of its own, and find every process that belongs to it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path

from django.conf import settings

UP_WITHIN_S = 240.0
GONE_WITHIN_S = 30.0
NOT_THE_SITES = ("DATABASE_URL", "REDIS_URL", "DJANGO_ALLOW_ASYNC_UNSAFE")


class SiteProcess:
    """Run one `manage.py up` on a `var` folder."""

    def __init__(self, var: Path, *arguments: str, prefix: Sequence[str] = (), port: int | None = None) -> None:
        self.var = var
        self.port = port or free_port()
        self.output_path = var.parent / f"{var.name}.out"
        self._output = self.output_path.open("wb")
        command = [*prefix, sys.executable, str(settings.BASE_DIR / "manage.py"), "up", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, *arguments], env=environment(var), stdout=self._output, stderr=subprocess.STDOUT
        )

    @property
    def output(self) -> str:
        """Return all it printed so far."""
        return self.output_path.read_text(errors="replace")

    @property
    def address(self) -> str:
        """Return where it says it answers."""
        found = re.search(r"answers at (\S+)", self.output)
        assert found, self.output
        return found[1]

    def wait_until_up(self) -> SiteProcess:
        """Return once it has printed its address."""
        wait_for(lambda: "answers at" in self.output or self.process.poll() is not None, UP_WITHIN_S)
        assert self.process.poll() is None, self.output
        return self

    def get(self, path: str = "healthz") -> int:
        """Return the status of one page, or 0 when nobody answers properly."""
        try:
            with urllib.request.urlopen(self.address + path, timeout=5) as answer:  # noqa: S310 - our own http
                return int(answer.status)
        except OSError:
            return 0

    def pid_of(self, text: str) -> int:
        """Return the oldest living process of this site whose command line contains `text`."""
        return oldest(pid for pid in processes_of(self.var) if text in command_line(pid))

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal to the supervisor alone and wait for it; its exit status."""
        self.process.send_signal(number)
        return self.process.wait(GONE_WITHIN_S)

    def clean_up(self) -> None:
        """Clean up at the end of a test, however it went."""
        if self.process.poll() is None:
            self.end()
        self._output.close()


def environment(var: Path) -> dict[str, str]:
    """Return the environment of a site on `var`, with the site's own settings and none of the tests'."""
    kept = {name: value for name, value in os.environ.items() if name not in NOT_THE_SITES}
    return {**kept, "KERNELSCI_VAR": str(var), "DJANGO_SETTINGS_MODULE": "kernelsci_site.settings"}


def processes_of(var: Path) -> set[int]:
    """Return the ids of all living processes that work for `var`, whoever their parent is by now."""
    return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _belongs(entry, var)}


def command_line(pid: int) -> str:
    """Return what a process was called with; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def oldest(pids: Iterable[int]) -> int:
    """Return the process that was started first, which need not have the lowest number: numbers start again at the
    kernel's pid_max."""
    return min(pids, key=_started_at)


def _started_at(pid: int) -> tuple[int, int]:
    """Return the process's start in clock ticks since boot, with its number; a process that is gone comes last."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return sys.maxsize, pid
    return int(fields[19]), pid


def no_process_left(var: Path, within_s: float = GONE_WITHIN_S) -> bool:
    """Return whether all processes of `var` are gone, soon."""
    return wait_for(lambda: not processes_of(var), within_s)


def wait_for(condition: object, within_s: float) -> bool:
    """Return whether `condition()` becomes true in time."""
    assert callable(condition)
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.1)
    return bool(condition())


def free_port() -> int:
    """Return a port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _belongs(process: Path, var: Path) -> bool:
    """Return whether a process belongs to the site. Servers overwrite their environment with their title, so their
    folder tells as well."""
    try:
        if "Z" in (process / "stat").read_text().rpartition(")")[2].split()[:1]:
            return False
        marked = f"KERNELSCI_VAR={var}".encode() in (process / "environ").read_bytes().split(b"\0")
        return marked or (process / "cwd").resolve() in (var / "postgres", var / "redis")
    except OSError:
        return False

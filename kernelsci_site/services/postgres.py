"""Run PostgreSQL under our own supervision: one socket, a password, no network."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import psycopg

from kernelsci_site.services import privileges
from kernelsci_site.services.binaries import PostgresBinaries, find_postgres
from kernelsci_site.services.part import Part, PartFailedError
from kernelsci_site.services.var import Var

NAME = "kernelsci"
LEFTOVERS_WITHIN_S = 10.0
CONNECT_TIMEOUT_S = 5


def embedded_url(var: Var, database: str = NAME) -> str:
    """Return the URL of the embedded server of `var`, whether or not it is running."""
    password = quote(var.secret("postgres"), safe="")
    return f"postgresql://{NAME}:{password}@/{database}?host={quote(str(var.socket_folder), safe='')}"


@dataclass(frozen=True)
class EmbeddedPostgres:
    """Run the server whose data is in `var`."""

    var: Var

    @property
    def data(self) -> Path:
        """Return PostgreSQL's data folder, which exists only once initdb has finished."""
        return self.var.root / "postgres"

    @cached_property
    def binaries(self) -> PostgresBinaries:
        """Return the programs to use: once data exists, those of its major version. Raises `NoServerError`."""
        version = self.data / "PG_VERSION"
        return find_postgres(int(version.read_text()) if version.exists() else None)

    def part(self) -> Part:
        """Return the server as the supervisor runs it. SIGINT is PostgreSQL's fast shutdown."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.var.socket_folder),
            "unix_socket_permissions": "0700",
            "max_connections": "100",
            "timezone": "UTC",
            "log_checkpoints": "off",
            "random_page_cost": "1.1",  # for solid-state disks: at 4, a run's page would read all runs' evaluations
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return Part(
            name="postgres",
            command=[self.binaries.program("postgres"), "-D", str(self.data), *options],
            stop_signal=signal.SIGINT,
            abandon_signal=signal.SIGINT,
            drop_privileges=privileges.drop_method(),
            quiet=True,
            is_server=True,
            prepare=self.prepare,
            is_ready=self.is_ready,
        )

    def prepare(self) -> None:
        """Create the data folder at the first start; clean up after a killed server at any later one."""
        self.var.make_socket_folder(privileges.service_users())
        if not self.data.exists():
            self._initialise()
        # PostgreSQL refuses a folder that others may read, as one that was copied or unpacked often is.
        self.data.chmod(0o700)
        self._clear_leftovers()
        privileges.hand_over(privileges.drop_method(), self.data, self.var.socket_folder)

    def is_ready(self) -> bool:
        """Return whether the server answers with our database in it, which is created the first time."""
        try:
            with self._connect("postgres") as connection:
                if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [NAME]).fetchone() is None:
                    connection.execute(f"CREATE DATABASE {NAME}")
        except psycopg.OperationalError:
            return False
        return True

    def _connect(self, database: str) -> psycopg.Connection:
        return psycopg.connect(embedded_url(self.var, database), autocommit=True, connect_timeout=CONNECT_TIMEOUT_S)

    def _initialise(self) -> None:
        """Run initdb in a draft folder that is renamed when complete, so that a start killed half-way leaves nothing
        valid.
        """
        # In the same folder, so that the rename at the end is atomic.
        draft = self.var.folder() / "postgres.draft"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        with self._password_file() as password:
            self._run_initdb(draft, password)
        draft.rename(self.data)

    def _run_initdb(self, draft: Path, password: Path) -> None:
        how = privileges.drop_method()
        privileges.hand_over(how, draft)
        command = [self.binaries.program("initdb"), "-D", str(draft), "-U", NAME, f"--pwfile={password}"]
        command += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]
        done = subprocess.run(
            [*privileges.command_prefix(how), *command], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise PartFailedError(f"initdb failed: {(done.stderr or done.stdout).strip()}")

    @contextmanager
    def _password_file(self) -> Iterator[Path]:
        """Provide the password in a file that only the user who runs initdb can read, for that long."""
        path = self.var.socket_folder / "password"
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(self.var.secret("postgres"))
        privileges.hand_over(privileges.drop_method(), self.var.socket_folder)
        try:
            yield path
        finally:
            path.unlink()

    def _clear_leftovers(self) -> None:
        """Wait for an old server on this data to end, then remove its lock files.

        PostgreSQL itself takes any live process with the recorded id for its predecessor, even an unrelated one.
        """
        until = time.monotonic() + LEFTOVERS_WITHIN_S
        while pids := self._old_servers():
            if time.monotonic() > until:
                raise PartFailedError(f"a PostgreSQL still holds {self.data}: processes {pids}")
            for pid in pids:
                os.kill(pid, signal.SIGINT)
            time.sleep(0.1)
        # Safe now: no process works in this folder any more.
        for leftover in (self.data / "postmaster.pid", *self.var.socket_folder.glob(".s.PGSQL.*")):
            leftover.unlink(missing_ok=True)

    def _old_servers(self) -> list[int]:
        """Return the ids of PostgreSQL processes that work in our data folder."""
        processes = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [int(entry.name) for entry in processes if self._works_here(entry)]

    def _works_here(self, process: Path) -> bool:
        try:
            # A PostgreSQL server changes into its data folder and stays there.
            return (process / "cwd").resolve(strict=True) == self.data
        except OSError:
            return False

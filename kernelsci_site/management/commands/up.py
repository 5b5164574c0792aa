"""`manage.py up`: run everything this machine needs under one supervisor, until Ctrl-C."""

from __future__ import annotations

import os
import socket
import time
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError, call_command
from django.db import connections

from kernelsci_site import environment as env
from kernelsci_site.first_run import collect_static_files, fill_tables
from kernelsci_site.services.binaries import NoServerError
from kernelsci_site.services.console import Console
from kernelsci_site.services.dump import DumpError
from kernelsci_site.services.embedded import server_parts
from kernelsci_site.services.instance import AlreadyRunningError, Instance, only_instance
from kernelsci_site.services.part import PartFailedError
from kernelsci_site.services.site_parts import NoPortError, listen, web_part, worker_parts
from kernelsci_site.services.supervisor import StopRequestedError, Supervisor
from kernelsci_site.services.temporary import check_temporary_folder
from kernelsci_site.services.var import UnsafeFolderError, UnwritableFolderError
from kernelsci_site.upgrade import NewerDataError, back_up_before_migrating, refuse_newer_data
from kernelsci_site.welcome import make_link
from optimizer.actions.demo import do_start_demo
from optimizer.models import Run
from runners.doctor import missing_compiler

LOCAL = "127.0.0.1"
NEEDED_MB = 300  # a new PostgreSQL takes 60, and 16 for each file of its journal
EXPECTED = (
    AlreadyRunningError,
    DumpError,
    NewerDataError,
    NoPortError,
    NoServerError,
    PartFailedError,
    UnsafeFolderError,
    UnwritableFolderError,
)


class Command(BaseCommand):
    """Start PostgreSQL, Redis, the web server and the workers; restart what dies; stop everything at the end."""

    help = "Start everything on this machine: servers, pages, workers. Ctrl-C stops."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare where to listen, what to measure on, and whether to start a demo run."""
        parser.add_argument("--host", default=LOCAL, help=f"address to listen on (default {LOCAL})")
        parser.add_argument("--port", type=int, default=8000, help="first port to try (default 8000)")
        parser.add_argument(
            "--bench", action="append", metavar="TARGET", help="target to measure on this machine (default cpu)"
        )
        parser.add_argument("--demo", action="store_true", help="start demo runs if there is no run yet")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Run until a stop is requested. Raises `CommandError` for errors that a person can fix."""
        try:
            with only_instance(settings.VAR) as instance:
                Site(instance, Console(), options).run()
        except EXPECTED as error:
            raise CommandError(str(error)) from error


class Site:
    """Run the whole site once."""

    def __init__(self, instance: Instance, console: Console, options: dict[str, Any]) -> None:
        self.instance = instance
        self.console = console
        self.options = options
        self.supervisor = Supervisor(console, settings.VAR.folder("log"))

    def run(self) -> None:
        """Start the parts in order, keep them alive, and stop all of them whatever happens."""
        with self.supervisor.listening_for_signals():
            try:
                self._start_and_keep()
            except StopRequestedError:
                self.console.say("stopped before everything was up")
            finally:
                connections.close_all()
                self.supervisor.stop()
        self.console.say("stopped; nothing is left running")

    def _start_and_keep(self) -> None:
        settings.VAR.check_room(NEEDED_MB)
        check_temporary_folder()
        self._name_what_is_missing()
        # The port is bound before the servers start, so that a conflict shows at once.
        with listen(self.options["host"], self.options["port"]) as listener:
            address = self._choose_address(listener)
            self._collect_static_files()
            self._start_servers()
            self._migrate()
            self._prepare_first_run()
            self._start_site(listener)
            self._greet(address)
            self.supervisor.run(address)

    def _name_what_is_missing(self) -> None:
        if advice := missing_compiler():
            self.console.warn(advice)

    def _choose_address(self, listener: socket.socket) -> str:
        port = listener.getsockname()[1]
        if port != self.options["port"]:
            self.console.say(f"port {self.options['port']} is taken; using {port}")
        address = f"http://{self._host_name()}:{port}/"
        self.instance.write_holder(address)
        return address

    def _host_name(self) -> str:
        """Return the name that people type: the address itself, or the first allowed host for "all addresses"."""
        host = self.options["host"]
        name = settings.ALLOWED_HOSTS[0] if host in ("0.0.0.0", "::") else host  # noqa: S104 - compared
        return f"[{name}]" if ":" in name and not name.startswith("[") else str(name)

    def _start_servers(self) -> None:
        parts = server_parts(settings.VAR, postgres=not settings.DATABASE_URL, redis=not settings.REDIS_URL)
        self.supervisor.wait_until_ready([self.supervisor.start(part) for part in parts])

    def _collect_static_files(self) -> None:
        """Collect the static files of this version under hashed names, and let the web server serve those."""
        collect_static_files()
        # Children inherit the environment; this process itself serves no files.
        os.environ["KERNELSCI_STATIC_COLLECTED"] = "1"

    def _migrate(self) -> None:
        backups = settings.VAR.folder("backups")
        refuse_newer_data(backups)
        if kept := back_up_before_migrating(backups):
            self.console.say(f"the data is of an older version; a copy from before the upgrade is {kept}")
        call_command("migrate", interactive=False, verbosity=0)
        self.supervisor.check_not_stopped()

    def _prepare_first_run(self) -> None:
        self.administrator, self.password = fill_tables()
        if self.options["demo"] and not Run.objects.exists():
            do_start_demo()
        connections.close_all()

    def _start_site(self, listener: socket.socket) -> None:
        targets = self.options["bench"] or ["cpu"]
        web = web_part(listener, settings.BASE_DIR, host_header=self._host_name())
        workers = worker_parts(targets, settings.BASE_DIR)
        self.console.expect([web.name, *(part.name for part in workers)])
        self.supervisor.wait_until_ready([self.supervisor.start(web)])  # pages first: the cores are few
        for part in workers:
            self.supervisor.start(part)

    def _greet(self, address: str) -> None:
        link = make_link(settings.VAR, self.administrator)
        say = self.console.say
        say()
        if started := env.text("KERNELSCI_STARTED"):
            say(f"  Up {time.time() - float(started):.0f} s after make start")
        say(f"  Kernel Scientist answers at {address}")
        say(f"  Sign in once, within the hour: {address.rstrip('/')}{link}")
        if self.password:
            say(f"  Or as {self.administrator.username} with the password {self.password} (shown only now)")
        say(f"  Logs: {settings.VAR.root / 'log'}   Data: {settings.VAR.root}")
        say()

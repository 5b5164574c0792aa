"""`manage.py runners list|drain|undrain`: list runners, and drain one of them."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from optimizer.actions.runner import do_drain_runner, do_undrain_runner
from optimizer.management.words import Words, WordsCommand
from optimizer.models import Runner


class Command(WordsCommand):
    """Drain a single runner; `manage.py drain` drains all of them before a deploy."""

    help = "List runners; drain one, or let it claim jobs again."

    def add_words(self, words: Words) -> None:
        """Declare list | drain NAME [--note] | undrain NAME."""
        words.add_parser("list", help="all runners with their state")
        draining = words.add_parser("drain", help="let it finish its job and claim no more")
        draining.add_argument("--note", default="", help="reason")
        for one in (draining, words.add_parser("undrain", help="let it claim jobs again")):
            one.add_argument("name")

    def _list(self, options: dict[str, Any]) -> None:
        for row in Runner.objects.select_related("target").order_by("name"):
            state = "draining" if row.draining else "alive" if row.is_alive else "lost"
            self.stdout.write(f"{row.name}\t{row.target.key}\t{state}\t{row.drain_note}".rstrip())

    def _drain(self, options: dict[str, Any]) -> None:
        do_drain_runner(self.user, _runner(options["name"]), options["note"])
        self.stdout.write(f"{options['name']} claims no more jobs")

    def _undrain(self, options: dict[str, Any]) -> None:
        do_undrain_runner(self.user, _runner(options["name"]))
        self.stdout.write(f"{options['name']} claims jobs again")


def _runner(name: str) -> Runner:
    row = Runner.objects.filter(name=name).first()
    if row is None:
        known = ", ".join(Runner.objects.order_by("name").values_list("name", flat=True)) or "none"
        raise CommandError(f"there is no runner {name}; known are {known}")
    return row

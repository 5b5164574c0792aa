"""Manage the keys that sign jobs and results of spool directories: `manage.py keys show|trust|forget`."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from runners.commands.keys import ROLES, answer
from runners.signing.keyring import KeyFileError, Keyring


class Command(BaseCommand):
    """Do here what `python -m runners keys` does on a machine without the site."""

    help = "Show the public keys that sign jobs and results of spool directories, and pin those of others."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare show, trust ROLE KEY and forget ROLE NAME."""
        parser.add_argument("action", nargs="?", default="show", choices=["show", "trust", "forget"])
        parser.add_argument("role", nargs="?", default="", choices=["", *ROLES])
        parser.add_argument("key", nargs="?", default="", help="the key to trust, or the name of the one to forget")
        parser.add_argument("--name", default="", help="a name for a key that is trusted")

    def handle(self, *args: Any, **options: Any) -> None:
        """Carry out the action."""
        role, key = str(options["role"]), str(options["key"])
        if options["action"] != "show" and not (role and key):
            raise CommandError(f"{options['action']} takes a role ({', '.join(ROLES)}) and a key or name")
        asked = {"role": role, "key": key, "name": options["name"] if options["action"] == "trust" else key}
        try:
            self.stdout.write(answer(Keyring(), options["action"], asked))
        except KeyFileError as error:
            raise CommandError(str(error)) from error

"""`manage.py worker_token`: create, list and revoke tokens with which measuring workers ask for jobs."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from optimizer.management.words import Words, WordsCommand
from optimizer.secrets.worker_tokens import WorkerTokenError, add_token, revoke_token, tokens


class Command(WordsCommand):
    """Manage the tokens of measuring workers. A token is printed once; only its digest is stored."""

    help = "Create, list and revoke tokens of measuring workers, each for one queue."

    def add_words(self, words: Words) -> None:
        """Declare create QUEUE NAME | list | revoke NAME."""
        create = words.add_parser("create", help="create a token for a queue and print it")
        create.add_argument("queue", help="build, or bench.TARGET such as bench.sm_90")
        create.add_argument("name", help="a name for it, such as that of the machine")
        words.add_parser("list", help="queues and names of the tokens")
        words.add_parser("revoke", help="accept a token no longer").add_argument("name")

    def _create(self, options: dict[str, Any]) -> None:
        try:
            self.stdout.write(add_token(options["queue"], options["name"]))
        except WorkerTokenError as error:
            raise CommandError(str(error)) from error

    def _list(self, options: dict[str, Any]) -> None:
        for token in tokens():
            self.stdout.write(f"{token.queue}\t{token.name}")

    def _revoke(self, options: dict[str, Any]) -> None:
        if not revoke_token(options["name"]):
            raise CommandError(f"there is no token {options['name']}")
        self.stdout.write(f"{options['name']} is revoked")

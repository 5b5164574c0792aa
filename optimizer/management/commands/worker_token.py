"""`manage.py worker_token`: create, list and revoke tokens with which measuring workers ask for jobs."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from optimizer.actions.worker_key import do_forget_worker_key, do_register_worker_key
from optimizer.management.words import Words, WordsCommand
from optimizer.models import WorkerKey
from optimizer.secrets.worker_tokens import (
    WorkerToken,
    WorkerTokenError,
    add_token,
    revoke_token,
    token_named,
    token_of,
    tokens,
)
from runners.signing.keyring import KeyFileError, read_public_key


class Command(WordsCommand):
    """Manage the tokens of measuring workers. A token is printed once; only its digest is stored."""

    help = "Create, list and revoke tokens of measuring workers, each for one queue, and the keys of those workers."

    def add_words(self, words: Words) -> None:
        """Declare create QUEUE NAME | list | forget-key NAME | revoke NAME."""
        create = words.add_parser("create", help="create a token for a queue and print it")
        create.add_argument("queue", help="build, or bench.TARGET such as bench.sm_90")
        create.add_argument("name", help="a name for it, such as that of the machine")
        create.add_argument(
            "--runner-key",
            metavar="KEY",
            help="the runner's public key (`python -m runners keys` there), or a file with it; "
            "default: that of the first worker that uses the token",
        )
        words.add_parser("list", help="queues and names of the tokens, and their workers' public keys")
        forget = words.add_parser("forget-key", help="accept another key of the token's workers from now on")
        forget.add_argument("name")
        words.add_parser("revoke", help="accept a token no longer").add_argument("name")

    def _create(self, options: dict[str, Any]) -> None:
        try:
            public = read_public_key(options["runner_key"]) if options["runner_key"] else ""
            secret = add_token(options["queue"], options["name"])
        except (KeyFileError, WorkerTokenError) as error:
            raise CommandError(str(error)) from error
        token = token_of(secret)
        if token and public:
            do_register_worker_key(token.digest, public)
        self.stdout.write(secret)

    def _list(self, options: dict[str, Any]) -> None:
        keys = dict(WorkerKey.objects.values_list("token_digest", "public_key"))
        for token in tokens():
            self.stdout.write(f"{token.queue}\t{token.name}\t{keys.get(token.digest, 'no worker yet')}")

    def _forget_key(self, options: dict[str, Any]) -> None:
        if not do_forget_worker_key(_named(options["name"]).digest):
            raise CommandError(f"no worker has used {options['name']} yet")
        self.stdout.write(f"the next worker that uses {options['name']} registers its key")

    def _revoke(self, options: dict[str, Any]) -> None:
        token = _named(options["name"])
        revoke_token(token.name)
        do_forget_worker_key(token.digest)
        self.stdout.write(f"{token.name} is revoked")


def _named(name: str) -> WorkerToken:
    """Return the token of that name. Raises CommandError."""
    token = token_named(name)
    if token is None:
        raise CommandError(f"there is no token {name}")
    return token

"""`manage.py token`: create, list and revoke API tokens."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.utils import timezone

from optimizer.actions.token import do_make_token, do_revoke_token
from optimizer.management.words import Words, WordsCommand, named
from optimizer.models import ApiToken, TokenScope


class Command(WordsCommand):
    """Manage tokens. The secret is printed once; only its hash is stored."""

    help = "Create, list and revoke API tokens."

    def add_words(self, words: Words) -> None:
        """Declare create NAME --scope S … | list | revoke ID."""
        create = words.add_parser("create", help="create a token and print it")
        create.add_argument("name")
        create.add_argument("--scope", action="append", required=True, choices=TokenScope.values)
        create.add_argument("--days", type=float, help="lifetime in days; default: unlimited")
        words.add_parser("list", help="valid tokens, without their secrets")
        revoke = words.add_parser("revoke", help="revoke a token")
        revoke.add_argument("id", type=int)

    def _create(self, options: dict[str, Any]) -> None:
        ends = timezone.now() + dt.timedelta(days=options["days"]) if options["days"] else None
        _, secret = do_make_token(self.user, options["name"], options["scope"], ends)
        self.stdout.write(secret)

    def _list(self, options: dict[str, Any]) -> None:
        for token in ApiToken.objects.usable().select_related("user"):
            self.stdout.write(f"{token.pk}\t{token.user}\t{token}\t{', '.join(token.scopes)}")

    def _revoke(self, options: dict[str, Any]) -> None:
        token = named(ApiToken.objects.filter(pk=options["id"]), "token", options["id"])
        do_revoke_token(self.user, token)
        self.stdout.write(f"{token} is revoked")

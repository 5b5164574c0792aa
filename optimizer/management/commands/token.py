"""`manage.py token`: make, list and revoke API tokens."""

from __future__ import annotations

import datetime as dt
from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from optimizer.actions.token import do_make_token, do_revoke_token
from optimizer.management.people import acting_user
from optimizer.models import ApiToken, TokenScope


class Command(BaseCommand):
    """The secret is printed once; only its hash is stored."""

    help = "Make, list and revoke tokens for the API."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """create NAME --scope S … | list | revoke ID."""
        parser.add_argument("--user", help="whose token; by default the first administrator's")
        actions = parser.add_subparsers(dest="action", required=True)
        create = actions.add_parser("create", help="make one and print it")
        create.add_argument("name")
        create.add_argument("--scope", action="append", required=True, choices=TokenScope.values)
        create.add_argument("--days", type=float, help="how long it lasts; for ever without")
        actions.add_parser("list", help="tokens that work, without their secrets")
        revoke = actions.add_parser("revoke", help="end one")
        revoke.add_argument("id", type=int)

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the action."""
        try:
            getattr(self, f"_{options['action']}")(options)
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from error

    def _create(self, options: dict[str, Any]) -> None:
        ends = timezone.now() + dt.timedelta(days=options["days"]) if options["days"] else None
        _, secret = do_make_token(acting_user(options["user"]), options["name"], options["scope"], ends)
        self.stdout.write(secret)

    def _list(self, options: dict[str, Any]) -> None:
        for token in ApiToken.objects.usable().select_related("user"):
            self.stdout.write(f"{token.pk}\t{token.user}\t{token}\t{', '.join(token.scopes)}")

    def _revoke(self, options: dict[str, Any]) -> None:
        token = ApiToken.objects.filter(pk=options["id"]).first()
        if token is None:
            raise CommandError(f"there is no token {options['id']}")
        do_revoke_token(acting_user(options["user"]), token)
        self.stdout.write(f"{token} is revoked")

"""Support commands with subcommands, as in `manage.py token list`."""

from __future__ import annotations

import argparse
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db.models import Model, QuerySet
from django.http import Http404

from optimizer.models import User

M = TypeVar("M", bound=Model)
Words: TypeAlias = "argparse._SubParsersAction[Any]"


class WordsCommand(BaseCommand):
    """Dispatch each subcommand to its own method, `_list` for `list`.

    What our actions refuse ends the command with the reason. Whoever may run a command has the database, so it acts
    for `--user`, by default the first administrator.
    """

    user_name: str | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare --user and the subcommands."""
        parser.add_argument("--user", help="the acting person; default: the first administrator")
        self.add_words(parser.add_subparsers(dest="word", required=True))

    def add_words(self, words: Words) -> None:
        """Declare the subcommands and their arguments."""
        raise NotImplementedError

    @cached_property
    def user(self) -> User:
        """Return the person for whom the command acts. Raises CommandError."""
        return acting_user(self.user_name)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the subcommand. Raises CommandError where the person may not, or something does not exist."""
        self.user_name = options["user"]
        try:
            getattr(self, f"_{options['word'].replace('-', '_')}")(options)
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from error
        except Http404 as error:
            raise CommandError(str(error)) from error


def acting_user(name: str | None) -> User:
    """Return the person of that name, by default the first administrator. Raises CommandError."""
    if name:
        return named(User.objects.filter(username=name), "user", name)
    found = User.objects.filter(is_superuser=True, is_active=True).order_by("pk").first()
    if found is None:
        raise CommandError("there is no administrator; name a --user")
    return found


def named(rows: QuerySet[M], kind: str, name: object) -> M:
    """Return the row that `name` selected. Raises CommandError where there is none."""
    row = rows.first()
    if row is None:
        raise CommandError(f"there is no {kind} {name}")
    return row

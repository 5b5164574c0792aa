"""`manage.py provider`: list model servers, try one, re-encrypt all keys."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from optimizer.actions.provider import do_rotate_keys
from optimizer.calls.check import check_provider
from optimizer.management.words import named
from optimizer.models import Provider


class Command(BaseCommand):
    """Manage providers. Keys are entered on the page only: on a command line others could see them."""

    help = "List and try model servers; re-encrypt their keys with the newest secret."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare list | check ID [--model M] | rotate-keys."""
        actions = parser.add_subparsers(dest="action", required=True)
        actions.add_parser("list")
        check = actions.add_parser("check", help="ask a server for a sum")
        check.add_argument("id", type=int)
        check.add_argument("--model", default="")
        actions.add_parser("rotate-keys", help="run after adding a new first secret to PROVIDER_KEY_SECRETS")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the action."""
        getattr(self, "_" + options["action"].replace("-", "_"))(options)

    def _list(self, options: dict[str, Any]) -> None:
        for row in Provider.objects.select_related("team"):
            key = "key stored" if row.has_key else "no key"
            self.stdout.write(f"{row.pk}\t{row.team.slug}/{row.name}\t{row.base_url}\t{row.default_model}\t{key}")

    def _check(self, options: dict[str, Any]) -> None:
        row = named(Provider.objects.filter(pk=options["id"]), "provider", options["id"])
        check = check_provider(row, options["model"])
        if not check.answers:
            raise CommandError(check.summary)
        self.stdout.write(check.summary)

    def _rotate_keys(self, options: dict[str, Any]) -> None:
        done, lost = do_rotate_keys()
        self.stdout.write(f"{done} keys encrypted with the newest secret")
        if lost:
            raise CommandError(f"unreadable keys, enter them again: {', '.join(lost)}")

"""`manage.py findings list|show|add|edit`: what agents read before they write."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db.models import Model, QuerySet

from optimizer.actions.finding import FindingSupersededError, do_edit_finding, do_write_finding
from optimizer.fulltext import findings_seen_by
from optimizer.management.people import acting_user
from optimizer.models import Finding, Problem, Target, Team, User

M = TypeVar("M", bound=Model)


class Command(BaseCommand):
    """Acts for a person, by default the first administrator, and shows what that person may see."""

    help = "List, show, write and edit findings. Texts come from a file, or from standard input."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """list [--target --problem] | show ID | add TITLE --team T | edit ID."""
        parser.add_argument("--user", help="who acts; by default the first administrator")
        actions = parser.add_subparsers(dest="action", required=True)
        listing = actions.add_parser("list", help="current ones, newest first")
        adding = actions.add_parser("add", help="write one")
        adding.add_argument("title")
        adding.add_argument("--team", required=True, help="slug of the team that it belongs to")
        for scoped in (listing, adding):
            scoped.add_argument("--target", help="key of a target")
            scoped.add_argument("--problem", help="name of a problem")
        editing = actions.add_parser("edit", help="write its successor")
        editing.add_argument("--title", help="the same as before without")
        for about in (actions.add_parser("show", help="one, whole"), editing):
            about.add_argument("id", type=int)
        for written in (adding, editing):
            written.add_argument("--text", default="-", metavar="FILE", help="markdown; - is standard input")
            written.add_argument("--source", help="where it comes from")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the action. CommandError where the person may not, or something is not there."""
        try:
            getattr(self, f"_{options['action']}")(acting_user(options["user"]), options)
        except (ValidationError, FindingSupersededError) as error:
            raise CommandError("; ".join(getattr(error, "messages", None) or [str(error)])) from error

    def _list(self, user: User, options: dict[str, Any]) -> None:
        rows = findings_seen_by(user).filter(superseded_by=None)
        for name, path in (("target", "target__key"), ("problem", "problem__slug")):
            rows = rows.filter(**{path: options[name]}) if options[name] else rows
        for row in rows.select_related("team", "target", "problem", "run").order_by("-pk"):
            self.stdout.write(f"{row.pk}\t{row.origin}\t{row.get_scope()}\t{row}")

    def _show(self, user: User, options: dict[str, Any]) -> None:
        row = _found(user, options["id"])
        replaced = f"\nsuperseded by {row.superseded_by_id}" if row.superseded_by_id else ""
        self.stdout.write(f"{row}\n{row.get_scope()}; {row.origin} {row.source}{replaced}\n\n{row.text}")

    def _add(self, user: User, options: dict[str, Any]) -> None:
        row = do_write_finding(
            user, _named(Team.objects.filter(slug=options["team"]), "team", options["team"]), options["title"],
            _text(options["text"]), options["source"] or "",
            target=_optional(Target.objects.filter(key=options["target"]), "target", options["target"]),
            problem=_optional(Problem.objects.filter(slug=options["problem"]), "problem", options["problem"]),
        )  # fmt: skip
        self.stdout.write(f"finding {row.pk}")

    def _edit(self, user: User, options: dict[str, Any]) -> None:
        row = _found(user, options["id"])
        source = row.source if options["source"] is None else options["source"]
        newer = do_edit_finding(user, row, options["title"] or row.title, _text(options["text"]), source)
        self.stdout.write(f"finding {newer.pk} takes the place of {row.pk}")


def _found(user: User, number: int) -> Finding:
    rows = findings_seen_by(user).select_related("team", "target", "problem", "run")
    return _named(rows.filter(pk=number), "finding", str(number))


def _named(rows: QuerySet[M], kind: str, name: str) -> M:
    row = rows.first()
    if row is None:
        raise CommandError(f"there is no {kind} {name}")
    return row


def _optional(rows: QuerySet[M], kind: str, name: str | None) -> M | None:
    return _named(rows, kind, name) if name else None


def _text(path: str) -> str:
    """What the file says. Raises CommandError where it cannot be read."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} cannot be read: {error}") from error

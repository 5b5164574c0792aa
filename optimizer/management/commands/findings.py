"""`manage.py findings list|show|add|edit`: manage the findings that agents read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TypeVar

from django.core.management.base import CommandError
from django.db.models import Model, QuerySet

from optimizer.actions.finding import FindingSupersededError, do_edit_finding, do_write_finding
from optimizer.management.words import Words, WordsCommand, named
from optimizer.models import Finding, Problem, Target, Team, User
from optimizer.queries.fulltext import findings_seen_by

M = TypeVar("M", bound=Model)


class Command(WordsCommand):
    """Act for a person, by default the first administrator, with that person's rights."""

    help = "List, show, write and edit findings. Texts come from a file, or from standard input."

    def add_words(self, words: Words) -> None:
        """Declare list [--target --problem] | show ID | add TITLE --team T | edit ID."""
        listing = words.add_parser("list", help="current findings, newest first")
        adding = words.add_parser("add", help="write a finding")
        adding.add_argument("title")
        adding.add_argument("--team", required=True, help="slug of the team to which it belongs")
        for scoped in (listing, adding):
            scoped.add_argument("--target", help="key of a target")
            scoped.add_argument("--problem", help="name of a problem")
        editing = words.add_parser("edit", help="write a newer version")
        editing.add_argument("--title", help="default: unchanged")
        for about in (words.add_parser("show", help="print one finding"), editing):
            about.add_argument("id", type=int)
        for written in (adding, editing):
            written.add_argument("--text", default="-", metavar="FILE", help="markdown; - is standard input")
            written.add_argument("--source", help="source of the finding")

    def _list(self, options: dict[str, Any]) -> None:
        rows = findings_seen_by(self.user).filter(superseded_by=None)
        for name, path in (("target", "target__key"), ("problem", "problem__slug")):
            rows = rows.filter(**{path: options[name]}) if options[name] else rows
        for row in rows.select_related("team", "target", "problem", "run").order_by("-pk"):
            self.stdout.write(f"{row.pk}\t{row.origin}\t{row.get_scope()}\t{row}")

    def _show(self, options: dict[str, Any]) -> None:
        row = _found(self.user, options["id"])
        replaced = f"\nsuperseded by {row.superseded_by_id}" if row.superseded_by_id else ""
        self.stdout.write(f"{row}\n{row.get_scope()}; {row.origin} {row.source}{replaced}\n\n{row.text}")

    def _add(self, options: dict[str, Any]) -> None:
        row = do_write_finding(
            self.user, named(Team.objects.filter(slug=options["team"]), "team", options["team"]), options["title"],
            _text(options["text"]), options["source"] or "",
            target=_optional(Target.objects.filter(key=options["target"]), "target", options["target"]),
            problem=_optional(Problem.objects.filter(slug=options["problem"]), "problem", options["problem"]),
        )  # fmt: skip
        self.stdout.write(f"finding {row.pk}")

    def _edit(self, options: dict[str, Any]) -> None:
        row = _found(self.user, options["id"])
        source = row.source if options["source"] is None else options["source"]
        try:
            newer = do_edit_finding(self.user, row, options["title"] or row.title, _text(options["text"]), source)
        except FindingSupersededError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"finding {newer.pk} supersedes {row.pk}")


def _found(user: User, number: int) -> Finding:
    rows = findings_seen_by(user).select_related("team", "target", "problem", "run")
    return named(rows.filter(pk=number), "finding", number)


def _optional(rows: QuerySet[M], kind: str, name: str | None) -> M | None:
    return named(rows, kind, name) if name else None


def _text(path: str) -> str:
    """Return the content of the file. Raises CommandError where it cannot be read."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} cannot be read: {error}") from error

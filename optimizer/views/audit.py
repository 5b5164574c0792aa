"""Show and export the audit log of a team."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from optimizer.access import access_team
from optimizer.actions.audit import log_action
from optimizer.models import AuditAction, AuditEntry, Team, TeamRole
from optimizer.views.signed_in import user_of

PER_PAGE = 100
COLUMNS = ("id", "at", "action", "actor_id", "actor_name", "team_id", "run_id", "subject", "details")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@login_required
@require_safe
def audit_log(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the log to owners, newest first."""
    team = access_team(user_of(request), slug, TeamRole.OWNER)
    entries = AuditEntry.objects.of_team(team)
    chosen = request.GET.get("action", "")
    if chosen in AuditAction.values:
        entries = entries.filter(action=chosen)
    page = Paginator(entries, PER_PAGE).get_page(request.GET.get("page"))
    context = {"team": team, "page": page, "actions": AuditAction.choices, "chosen": chosen}
    return render(request, "teams/log.html", context)


@login_required
@require_safe
def audit_export(request: HttpRequest, slug: str, kind: str) -> StreamingHttpResponse:
    """Export the whole log, oldest first, as CSV or JSON lines. The export itself is logged."""
    user = user_of(request)
    team = access_team(user, slug, TeamRole.OWNER)
    # Before streaming begins, because an error in the middle cannot undo what was sent.
    log_action(AuditAction.EXPORTED, user, team, team.name, format=kind)
    lines = _csv(team) if kind == "csv" else _json_lines(team)
    content_type = "text/csv; charset=utf-8" if kind == "csv" else "application/x-ndjson"
    headers = {
        "Content-Disposition": f'attachment; filename="audit-{team.slug}.{kind}"',
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingHttpResponse(lines, content_type=content_type, headers=headers)


def _rows(team: Team) -> Iterator[dict[str, Any]]:
    for entry in AuditEntry.objects.filter(team_id=team.pk).order_by("pk").iterator(chunk_size=1000):
        yield {name: getattr(entry, name) for name in COLUMNS} | {"at": entry.at.isoformat()}


def _json_lines(team: Team) -> Iterator[str]:
    for row in _rows(team):
        yield json.dumps(row, ensure_ascii=False) + "\n"


class _Echo:
    """Return each written line instead of storing it, so that `csv.writer` can be used in a stream."""

    def write(self, text: str) -> str:
        return text


def _csv(team: Team) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield writer.writerow(COLUMNS)
    for row in _rows(team):
        cells = [*list(row.values())[:-1], json.dumps(row["details"], ensure_ascii=False)]
        yield writer.writerow([_inert(cell) for cell in cells])


def _inert(cell: Any) -> Any:
    """Prefix text that a spreadsheet would evaluate as a formula with an apostrophe."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell

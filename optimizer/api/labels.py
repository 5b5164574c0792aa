"""Label, archive and export runs, and change many runs at once."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Field, Query, Router, Schema

from optimizer.access import access_run
from optimizer.actions.run_labels import (
    MAX_TAGS,
    NOTES_CHARS,
    Bulk,
    check_tags,
    do_archive_runs,
    do_in_bulk,
    do_label_run,
    operable,
)
from optimizer.api.auth import caller, needs
from optimizer.api.body import Body
from optimizer.api.errors import Refusal
from optimizer.api.runs import RunOut, run_out
from optimizer.forms.run_filter import runs_selected_by
from optimizer.models import Run, TokenScope
from optimizer.reports.runs_export import export

router = Router(tags=["runs"], auth=needs(TokenScope.RUNS))
MOST = 200


class Labels(Body):
    """Hold tags and notes, which replace the existing ones."""

    tags: list[str] = Field(default=[], max_length=MAX_TAGS)
    notes: str = Field(default="", max_length=NOTES_CHARS)


class Archived(Body):
    """State whether a run is archived."""

    archived: bool


class BulkIn(Body):
    """Describe one action on many runs; `tags` is for `tag` and `untag`."""

    do: Bulk
    runs: list[int] = Field(min_length=1, max_length=MOST)
    tags: list[str] = Field(default=[], max_length=MAX_TAGS)


class BulkOut(Schema):
    """Count the changed runs. `refused` lists those that the caller does not operate or that do not exist."""

    changed: int
    refused: list[int]


class ExportFilter(Schema):
    """Filter as in the table of runs."""

    q: str = ""
    problem: str = ""
    target: str = ""
    strategy: str = ""
    state: str = ""
    tag: str = ""
    archived: bool = False
    sort: str = ""


@router.put("/{int:run_id}/labels", response={200: RunOut, 422: Refusal})
def label_run(request: HttpRequest, run_id: int, body: Labels) -> Any:
    """Replace tags and notes."""
    run = access_run(caller(request), run_id, "operate")
    do_label_run(run, check_tags(",".join(body.tags)), body.notes)
    return run_out(run)


@router.put("/{int:run_id}/archived", response=RunOut)
def archive_run(request: HttpRequest, run_id: int, body: Archived) -> Any:
    """Archive or unarchive a run."""
    run = access_run(caller(request), run_id, "operate")
    do_archive_runs([run], archived=body.archived)
    run.refresh_from_db(fields=["is_archived"])
    return run_out(run)


@router.post("/bulk", response={200: BulkOut, 422: Refusal}, summary="Change many runs")
def in_bulk(request: HttpRequest, body: BulkIn) -> Any:
    """Apply one action to up to 200 runs: tag, untag, archive, unarchive or stop.

    Runs of others are left alone and listed.
    """
    user = caller(request)
    # Larger numbers would be an error of the database instead of a run that does not exist.
    wanted = [number for number in body.runs if 0 <= number < 2**63]
    runs = operable(user, Run.objects.visible_to(user).select_related("team").filter(pk__in=wanted))
    changed = do_in_bulk(user, runs, body.do, check_tags(",".join(body.tags)))
    mine = {run.pk for run in runs}
    return {"changed": changed, "refused": [number for number in dict.fromkeys(body.runs) if number not in mine]}


@router.get("/export.csv", auth=needs(TokenScope.READ), summary="The table of runs as CSV")
def export_csv(request: HttpRequest, only: Query[ExportFilter]) -> StreamingHttpResponse:
    """Stream one line per matching run, however many there are."""
    return _export(request, "csv")


@router.get("/export.jsonl", auth=needs(TokenScope.READ), summary="The table of runs as JSON lines")
def export_jsonl(request: HttpRequest, only: Query[ExportFilter]) -> StreamingHttpResponse:
    """Stream one JSON object per line."""
    return _export(request, "jsonl")


def _export(request: HttpRequest, form: Literal["csv", "jsonl"]) -> StreamingHttpResponse:
    """Stream the export, which parses the query string itself as the table does."""
    return export(runs_selected_by(request.GET, caller(request)), form)

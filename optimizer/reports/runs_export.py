"""Stream the table of runs as CSV or JSON: same filter and order, every row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Literal

from asgiref.sync import sync_to_async
from django.db.models import QuerySet
from django.http import StreamingHttpResponse

from optimizer.models import Run

CHUNK = 500
FIELDS = (
    *(
        "id",
        "title",
        "problem",
        "problem_version",
        "target",
        "strategy",
        "state",
        "stop_reason",
        "baseline",
        "objective",
        "seed",
    ),
    *("best_kernel", "best_speedup", "best_speedup_low", "best_speedup_high"),
    *("evaluations", "usd", "tokens", "device_s", "active_s", "created_at", "finished_at"),
    *("team", "created_by", "dispatcher", "tags", "notes", "archived", "cloned_from"),
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def export(runs: QuerySet[Run], form: Literal["csv", "jsonl"]) -> StreamingHttpResponse:
    """Stream the runs in their order. The caller has narrowed them to those that the person may see."""
    if form == "csv":
        return _streamed(runs, "text/csv; charset=utf-8", "runs.csv", _csv_lines([FIELDS]), _csv_rows)
    return _streamed(runs, "application/x-ndjson", "runs.jsonl", "", _json_rows)


def row_of(run: Run) -> dict[str, Any]:
    """Return a run as a row of the export, in the order of FIELDS."""
    values = (
        *(run.pk, run.title, run.problem_version.problem.slug, run.problem_version.number, run.target.key),
        *(run.strategy, run.state, run.stop_reason, run.baseline, run.objective, run.seed),
        *(run.best_kernel and run.best_kernel.number, run.best_speedup),
        *(run.best_speedup_low, run.best_speedup_high),
        *(run.spent_evaluations, float(run.spent_usd), run.spent_tokens, round(run.spent_device_s, 3)),
        *(round(run.elapsed_s(), 3), run.created_at.isoformat(), run.finished_at and run.finished_at.isoformat()),
        *(run.team.slug, run.created_by and run.created_by.get_username(), run.dispatcher),
        *(run.tags, run.notes, run.is_archived, run.cloned_from_id),
    )
    return dict(zip(FIELDS, values, strict=True))


def _streamed(
    runs: QuerySet[Run], kind: str, name: str, head: str, render: Callable[[Iterable[Run]], str]
) -> StreamingHttpResponse:
    # The ids are fixed at the start, so that rows added meanwhile do not shift the chunks.
    numbers = list(runs.values_list("pk", flat=True))

    async def body() -> AsyncIterator[str]:
        yield head
        for start in range(0, len(numbers), CHUNK):
            # Chunk by chunk: the response starts at once and never holds all rows in memory.
            yield await sync_to_async(lambda at=start: render(_rows(numbers[at : at + CHUNK])))()

    response = StreamingHttpResponse(body(), content_type=kind)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _rows(numbers: Sequence[int]) -> list[Run]:
    heavy = ("problem_version__bundle", "best_kernel__source", "settings", "providers", "guidance")
    found = Run.objects.for_dashboard().defer(*heavy).in_bulk(list(numbers))
    return [found[number] for number in numbers if number in found]


def _json_rows(runs: Iterable[Run]) -> str:
    return "".join(json.dumps(row_of(run), ensure_ascii=False) + "\n" for run in runs)


def _csv_rows(runs: Iterable[Run]) -> str:
    return _csv_lines([[csv_cell(value) for value in row_of(run).values()] for run in runs])


def _csv_lines(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def csv_cell(value: Any) -> Any:
    """Join lists, and prefix text that a spreadsheet would evaluate with an apostrophe."""
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value

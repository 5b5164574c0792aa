"""Export the table of runs: same filter and order, every row."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, StreamingHttpResponse
from django.views.decorators.http import require_safe

from optimizer.forms.run_filter import runs_selected_by
from optimizer.reports.runs_export import export
from optimizer.views.signed_in import user_of


@login_required
@require_safe
def runs_csv(request: HttpRequest) -> StreamingHttpResponse:
    """Stream one line per run, after a header."""
    return export(runs_selected_by(request.GET, user_of(request)), "csv")


@login_required
@require_safe
def runs_json(request: HttpRequest) -> StreamingHttpResponse:
    """Stream one JSON object per line, so that nobody needs to hold all of them in memory."""
    return export(runs_selected_by(request.GET, user_of(request)), "jsonl")

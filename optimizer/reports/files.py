"""Build downloads that browsers neither display in place nor guess the type of."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from django.http import Http404, HttpResponse

from optimizer.models import Kernel, Run
from optimizer.reports.facts import Facts, ancestry, facts_of
from optimizer.reports.html import html_report
from optimizer.reports.markdown import markdown_report
from optimizer.reports.submission import patch_against_seed, submission


@dataclass(frozen=True)
class ReportFormat:
    """Describe a format of a run's report."""

    content_type: str
    write: Callable[[Facts], str]


REPORT_FORMATS = {
    "html": ReportFormat("text/html", html_report),
    "md": ReportFormat("text/markdown", markdown_report),
}


def as_attachment(content: str | bytes, name: str, content_type: str) -> HttpResponse:
    """Return a download.

    Only letters, digits, dot, dash and underscore of `name` are kept, so that no header, shell or file system can
    misread it, and it names no folder.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip(".")
    styles = "; style-src 'unsafe-inline'" if content_type == "text/html" else ""
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": f"sandbox; default-src 'none'{styles}",
    }
    charset = "; charset=utf-8" if isinstance(content, str) else ""
    return HttpResponse(content, content_type=f"{content_type}{charset}", headers=headers)


def report_attachment(run: Run, name: str) -> HttpResponse:
    """Return the run's report in the format of that name. Raises Http404 for an unknown format."""
    form = REPORT_FORMATS.get(name)
    if form is None:
        raise Http404(f"A report is {' or '.join(REPORT_FORMATS)}.")
    return as_attachment(form.write(facts_of(run)), f"run-{run.pk}.{name}", form.content_type)


def submission_attachment(kernel: Kernel, kind: str) -> HttpResponse:
    """Return the kernel in a format of `optimizer.reports.submission.OFFERS`. Raises NoSubmissionError."""
    made = submission(kernel, kind)
    if made.data:
        return as_attachment(made.data, made.name, "application/zip")
    return as_attachment(made.text, made.name, "text/plain")


def patch_attachment(kernel: Kernel) -> HttpResponse:
    """Return what the kernel changed since its seed."""
    patch = patch_against_seed(kernel, ancestry(kernel)[0])
    return as_attachment(patch, f"run{kernel.run_id}-kernel{kernel.number}.patch", "text/x-diff")

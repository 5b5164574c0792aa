"""Files to take away: never shown in place, never guessed at."""

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
class Form:
    """A way to write a run's report down."""

    content_type: str
    write: Callable[[Facts], str]


FORMS = {"html": Form("text/html", html_report), "md": Form("text/markdown", markdown_report)}


def as_attachment(text: str, name: str, content_type: str) -> HttpResponse:
    """A download. Of `name` letters, digits, dot, dash and line stay: nothing that a header, a shell or a file system
    stumbles over, and no folder."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip(".")
    styles = "; style-src 'unsafe-inline'" if content_type == "text/html" else ""
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": f"sandbox; default-src 'none'{styles}",
    }
    return HttpResponse(text, content_type=f"{content_type}; charset=utf-8", headers=headers)


def report_attachment(run: Run, name: str) -> HttpResponse:
    """The run's report in the form of that name. Raises Http404 where there is no such form."""
    form = FORMS.get(name)
    if form is None:
        raise Http404(f"A report is {' or '.join(FORMS)}.")
    return as_attachment(form.write(facts_of(run)), f"run-{run.pk}.{name}", form.content_type)


def submission_attachment(kernel: Kernel, kind: str) -> HttpResponse:
    """The kernel ready to hand in as `native`, `gpumode` or `kernelbench`. Raises NoSubmissionError."""
    made = submission(kernel, kind)
    return as_attachment(made.text, made.name, "text/plain")


def patch_attachment(kernel: Kernel) -> HttpResponse:
    """What the kernel changed since the seed it came from."""
    patch = patch_against_seed(kernel, ancestry(kernel)[0])
    return as_attachment(patch, f"run{kernel.run_id}-kernel{kernel.number}.patch", "text/x-diff")

"""What can be taken away of a run: a report, and its kernels as something to hand in."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from optimizer.access import access_run
from optimizer.models import Kernel
from optimizer.reports.facts import ancestry, facts_of
from optimizer.reports.files import as_attachment
from optimizer.reports.html import html_report
from optimizer.reports.markdown import markdown_report
from optimizer.reports.submission import NoSubmissionError, offers_for, patch_against_seed, submission
from optimizer.views.signed_in import user_of


@login_required
@require_safe
def run_report(request: HttpRequest, run_id: int, form: str) -> HttpResponse:
    """The run as one file: `html`, which needs nothing else, or `md`."""
    run = access_run(user_of(request), run_id, "view")
    if form == "html":
        return as_attachment(html_report(facts_of(run)), f"run-{run.pk}.html", "text/html")
    if form == "md":
        return as_attachment(markdown_report(facts_of(run)), f"run-{run.pk}.md", "text/markdown")
    raise Http404


@login_required
@require_safe
def run_export(request: HttpRequest, run_id: int) -> HttpResponse:
    """All that can be taken away of a run, with the best kernel or `?kernel=` as files."""
    run = access_run(user_of(request), run_id, "view")
    wanted = request.GET.get("kernel", "")
    number = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 10 else None
    kernel = get_object_or_404(Kernel, run=run, number=number) if number is not None else run.best_kernel
    context = {
        "run": run,
        "kernel": kernel,
        "offers": offers_for(kernel) if kernel else {},
        "has_seed": kernel is not None and len(ancestry(kernel)) > 1,
    }
    return render(request, "runs/export.html", context)


@login_required
@require_safe
def kernel_submission(request: HttpRequest, run_id: int, number: int, kind: str) -> HttpResponse:
    """The kernel ready to hand in as `native`, `gpumode` or `kernelbench`."""
    try:
        made = submission(_kernel(request, run_id, number), kind)
    except NoSubmissionError as error:
        raise Http404(str(error)) from error
    return as_attachment(made.text, made.name, "text/plain")


@login_required
@require_safe
def kernel_patch(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """What the kernel changed since the seed it came from."""
    kernel = _kernel(request, run_id, number)
    seed = ancestry(kernel)[0]
    return as_attachment(patch_against_seed(kernel, seed), f"run{run_id}-kernel{number}.patch", "text/x-diff")


def _kernel(request: HttpRequest, run_id: int, number: int) -> Kernel:
    run = access_run(user_of(request), run_id, "view")
    return get_object_or_404(
        Kernel.objects.select_related("run__problem_version", "run__target"), run=run, number=number
    )

"""Download a run's report and its kernels as submissions."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from optimizer.access import access_kernel, access_run
from optimizer.models import Kernel
from optimizer.reports.facts import ancestry
from optimizer.reports.files import patch_attachment, report_attachment, submission_attachment
from optimizer.reports.submission import NoSubmissionError, offers_for
from optimizer.text.whole_numbers import COUNT_DIGITS, parse_whole_number
from optimizer.views.signed_in import user_of


@login_required
@require_safe
def run_report(request: HttpRequest, run_id: int, form: str) -> HttpResponse:
    """Download the report as one file: `html`, which needs no other file, or `md`."""
    return report_attachment(access_run(user_of(request), run_id, "view"), form)


@login_required
@require_safe
def run_export(request: HttpRequest, run_id: int) -> HttpResponse:
    """List all downloads of a run, with the best kernel or `?kernel=`."""
    run = access_run(user_of(request), run_id, "view")
    number = parse_whole_number(request.GET.get("kernel"), COUNT_DIGITS)
    kernel = get_object_or_404(Kernel, run=run, number=number) if number is not None else run.best_kernel
    context = {
        "run": run,
        "kernel": kernel,
        "offers": offers_for(kernel) if kernel else [],
        "has_seed": kernel is not None and len(ancestry(kernel)) > 1,
    }
    return render(request, "runs/export.html", context)


@login_required
@require_safe
def kernel_submission(request: HttpRequest, run_id: int, number: int, kind: str) -> HttpResponse:
    """Download the kernel in one of the formats that the page of exports lists."""
    try:
        return submission_attachment(access_kernel(user_of(request), run_id, number, "view"), kind)
    except NoSubmissionError as error:
        raise Http404(str(error)) from error


@login_required
@require_safe
def kernel_patch(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """Download what the kernel changed since its seed."""
    return patch_attachment(access_kernel(user_of(request), run_id, number, "view"))

"""Add a problem: paste or upload it, look at what a worker found, then start a run."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from optimizer.actions.problem_upload import (
    do_add_uploaded_problem,
    do_discard_upload,
    do_upload_problem,
    may_add_problems,
    warnings_of,
)
from optimizer.forms.problem_upload import ProblemUploadForm
from optimizer.models import Problem, ProblemUpload, UploadState
from optimizer.views.safe_html import markdown
from optimizer.views.signed_in import user_of
from runners import wire
from runners.problems.uploading import Inspection


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def problem_new(request: HttpRequest) -> HttpResponse:
    """Show the form, and take an upload."""
    user = user_of(request)
    posted = (request.POST, request.FILES) if request.method == "POST" else ()
    form = ProblemUploadForm(user, *posted)
    if request.method == "POST" and form.is_valid():
        try:
            upload = do_upload_problem(user, *form.upload())
            return redirect("problem_upload", upload_id=upload.pk)
        except ValidationError as refusal:
            add_errors(form, refusal)
    waiting = ProblemUpload.objects.of(user).light()[:5]
    context = {"form": form, "may_add": may_add_problems(user), "waiting": waiting}
    return render(request, "problems/new.html", context)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def problem_upload(request: HttpRequest, upload_id: int) -> HttpResponse:
    """Show how the check stands and what it found, and add the problem."""
    related = ("team", "created_by", "version__problem")
    uploads = ProblemUpload.objects.of(user_of(request)).light().select_related(*related)
    upload = get_object_or_404(uploads, pk=upload_id)
    if request.method == "POST":
        return _added(request, upload)
    if upload.version is not None:
        return redirect("problem_page", slug=upload.version.problem.slug)
    context: dict[str, Any] = {"upload": upload, "may_add": True}
    if upload.state == UploadState.REFUSED:
        context["form"] = refused_form(upload)
    if upload.state == UploadState.READY:
        context |= _found(upload)
    return render(request, "problems/upload.html", context)


@login_required
@require_POST
def problem_discard(request: HttpRequest, upload_id: int) -> HttpResponse:
    """Delete an upload."""
    if not ProblemUpload.objects.of(user_of(request)).filter(pk=upload_id).exists():
        raise Http404("There is no such upload.")
    do_discard_upload(user_of(request), upload_id)
    messages.success(request, "Upload discarded.")
    return redirect("problem_new")


def refused_form(upload: ProblemUpload) -> ProblemUploadForm:
    """Return the form as it was sent, with the complaints at the field that they are about."""
    is_text, team = upload.is_text, upload.team.slug if upload.team else ""
    sent = {"name": upload.name, "team": team, "source": upload.text if is_text else ""}
    form = ProblemUploadForm(upload.created_by, sent)
    form.full_clean()
    form.errors.clear()
    for complaint in upload.complaints:
        form.add_error("source" if is_text else "file", complaint)
    return form


def add_errors(form: Form, refusal: ValidationError) -> None:
    """Put the faults of an action at the fields of a form."""
    faults = refusal.message_dict if hasattr(refusal, "error_dict") else {None: refusal.messages}
    for name, found in faults.items():
        form.add_error(name if name in form.fields else None, found)


def _added(request: HttpRequest, upload: ProblemUpload) -> HttpResponse:
    try:
        version = do_add_uploaded_problem(user_of(request), upload.pk)
    except ValidationError as refusal:
        messages.error(request, " ".join(refusal.messages))
        return redirect("problem_upload", upload_id=upload.pk)
    messages.success(request, f"Added {version.problem.title}.")
    if request.POST.get("then") == "run":
        return redirect(f"{reverse('start_run')}?problem={version.problem.slug}")
    return redirect("problem_page", slug=version.problem.slug)


def _found(upload: ProblemUpload) -> dict[str, Any]:
    inspection = wire.from_plain(Inspection, upload.inspection)
    reading, seen = inspection.reading, inspection.examination
    footprints = seen.footprint_bytes if seen else {}
    known = Problem.objects.filter(slug=upload.name).first()
    return {
        "reading": reading,
        "seen": seen,
        "reference_us": 1e6 * seen.seconds if seen else None,
        "warnings": warnings_of(inspection),
        "description": markdown(reading.description),
        "cases": [(case, footprints.get(case.name)) for case in reading.cases],
        "files": sorted(reading.bundle.files) if reading.bundle else [],
        "next_version": known.latest().number + 1 if known else 1,
        "seen_by": known.team if known else upload.team,
    }

"""Take problems from outside: upload one, read what a worker found, add it."""

from __future__ import annotations

import base64
from typing import Any

from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Field, Router, Schema, Status

from optimizer.actions.problem_upload import (
    MAX_ARCHIVE_BYTES,
    do_add_uploaded_problem,
    do_discard_upload,
    do_upload_problem,
    warnings_of,
)
from optimizer.api.auth import caller, needs
from optimizer.api.body import Body
from optimizer.api.errors import Refusal
from optimizer.api.runs import team_of
from optimizer.models import ProblemUpload, TokenScope
from runners import wire
from runners.problems.files import FILE_BYTES
from runners.problems.uploading import Inspection

router = Router(tags=["problems"], auth=needs(TokenScope.READ))
UPLOAD = needs(TokenScope.RUNS)


class UploadIn(Body):
    """Hold a problem: `source`, the text of a Python module in KernelBench's form, or `archive`, a GPU MODE directory
    or one of our own format in Base64, whose kind `file_name` tells by its suffix. Only members of `team` will see
    the problem; without a team, everybody."""

    name: str = Field(max_length=80)
    source: str = Field(default="", max_length=FILE_BYTES)
    archive: str = Field(default="", max_length=2 * MAX_ARCHIVE_BYTES)
    file_name: str = Field(default="problem.zip", max_length=200)
    team: str = Field(default="", max_length=60)


class CaseOut(Schema):
    """Describe a case; `footprint_bytes` is what inputs, weights and outputs take, null if only running it tells."""

    name: str
    purpose: str
    sizes: dict[str, str]
    targets: list[str]
    reduced: str
    footprint_bytes: int | None


class TensorOut(Schema):
    """Describe an input or output of the case that was run."""

    name: str
    dtype: str
    shape: list[int]
    tolerance: str


class PreviewOut(Schema):
    """Describe what was found in an upload that can be added."""

    title: str
    description: str
    languages: list[str]
    warnings: list[str]
    reference_us: float
    cases: list[CaseOut]
    inputs: list[TensorOut]
    outputs: list[TensorOut]


class UploadOut(Schema):
    """Describe an upload. `state` is queued, running, ready, refused or added; `problem` is set once it is added."""

    id: int
    name: str
    state: str
    complaints: list[str]
    preview: PreviewOut | None
    problem: str | None


@router.post("", response={202: UploadOut, 422: Refusal}, auth=UPLOAD)
def upload_problem(request: HttpRequest, body: UploadIn) -> Any:
    """Upload a problem. A worker reads and runs it in a sandbox; nothing is added before `add` is called."""
    if body.archive:
        file_name, content = body.file_name, _decoded(body.archive)
    else:
        file_name, content = f"{body.name}.py", body.source.encode()
    team = team_of(request, body.team) if body.team else None
    return Status(202, _out(do_upload_problem(caller(request), body.name, file_name, content, team)))


@router.get("/{int:upload_id}", response=UploadOut)
def read_upload(request: HttpRequest, upload_id: int) -> Any:
    """Return an upload of one's own and what was found."""
    return _out(_own(request, upload_id))


@router.post("/{int:upload_id}/add", response={200: UploadOut, 422: Refusal}, auth=UPLOAD)
def add_problem(request: HttpRequest, upload_id: int) -> Any:
    """Add an upload that is `ready` as a problem. Called again, it changes nothing."""
    upload = _own(request, upload_id)
    do_add_uploaded_problem(caller(request), upload.pk)
    return _out(_own(request, upload_id))


@router.delete("/{int:upload_id}", response={204: None}, auth=UPLOAD)
def discard_upload(request: HttpRequest, upload_id: int) -> Any:
    """Delete an upload. A problem that was added stays."""
    do_discard_upload(caller(request), _own(request, upload_id).pk)
    return Status(204, None)


def _own(request: HttpRequest, upload_id: int) -> ProblemUpload:
    if upload_id >= 2**63:
        raise Http404("There is no such upload.")
    rows = ProblemUpload.objects.of(caller(request)).defer("content").select_related("version__problem")
    return get_object_or_404(rows, pk=upload_id)


def _decoded(archive: str) -> bytes:
    try:
        return base64.b64decode(archive, validate=True)
    except ValueError as error:  # what is not ASCII raises no binascii.Error, which is a ValueError
        raise ValidationError({"archive": "This is not Base64."}) from error


def _out(upload: ProblemUpload) -> dict[str, Any]:
    found = wire.from_plain(Inspection, upload.inspection) if upload.inspection else None
    return {
        "id": upload.pk,
        "name": upload.name,
        "state": upload.state,
        "complaints": upload.complaints,
        "preview": _preview(found) if found else None,
        "problem": upload.version.problem.slug if upload.version else None,
    }


def _preview(found: Inspection) -> dict[str, Any]:
    reading, seen = found.reading, found.examination
    footprints = seen.footprint_bytes if seen else {}
    return {
        "title": reading.title,
        "description": reading.description,
        "languages": list(reading.languages),
        "warnings": list(warnings_of(found)),
        "reference_us": 1e6 * seen.seconds if seen else 0.0,
        "cases": [{**wire.to_plain(case), "footprint_bytes": footprints.get(case.name)} for case in reading.cases],
        "inputs": wire.to_plain(seen.inputs) if seen else [],
        "outputs": wire.to_plain(seen.outputs) if seen else [],
    }

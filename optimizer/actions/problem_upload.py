"""Take problems that people upload, and add them once a worker has read and tried them in a sandbox."""

from __future__ import annotations

import datetime as dt
import re

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from optimizer.access import ROLE_NEEDED, may_in_team
from optimizer.actions.audit import log_action
from optimizer.actions.problem import do_import_problem
from optimizer.actions.quota import lock_person
from optimizer.enqueue import enqueue_upload
from optimizer.models import (
    AuditAction,
    Membership,
    Problem,
    ProblemUpload,
    ProblemVersion,
    Team,
    TeamRole,
    UploadState,
    User,
)
from optimizer.models.problem_upload import origin_of
from optimizer.text.storable import storable, storable_text
from runners import wire
from runners.problems.base import ProblemError
from runners.problems.files import FILE_BYTES
from runners.problems.uploading import ARCHIVES, READ_S, RUN_S, Inspection

MAX_ARCHIVE_BYTES = 2 << 20
MAX_UNFINISHED = 3
MAX_CLAIMS = 3
# Both processes run to their limits at most, beside a start that may be slow.
LEASE = dt.timedelta(seconds=READ_S + RUN_S + 60)
KEPT = dt.timedelta(days=1)
REFUSED_KEPT = dt.timedelta(hours=1)
# The address of the form is where a problem of this name would be.
RESERVED = "new"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")


def may_add_problems(user: User) -> bool:
    """Return whether the person may add problems: everybody who may start runs somewhere."""
    enough = [role for role in TeamRole if role.rank >= ROLE_NEEDED["operate"].rank]
    return user.is_superuser or Membership.objects.filter(user=user, role__in=enough).exists()


def check_upload(user: User, name: str, file_name: str, content: bytes, team: Team | None = None) -> None:
    """Raise ValidationError, by field, where an upload cannot be taken."""
    faults: dict[str, str] = {}
    if not _NAME.fullmatch(name):
        faults["name"] = "Use lowercase letters, digits, “-” and “_”, at most 80."
    elif name == RESERVED or Problem.objects.filter(slug=name).exclude(origin=origin_of(user)).exists():
        faults["name"] = "Another problem has this name."
    most = MAX_ARCHIVE_BYTES if file_name.endswith(ARCHIVES) else FILE_BYTES
    if not content.strip():
        faults["source"] = "Paste a module or choose a file."
    elif len(content) > most:
        faults["source"] = f"At most {most >> 10} KiB."
    elif not file_name.endswith((".py", *ARCHIVES)):
        faults["source"] = f"Choose a Python file or an archive ({', '.join(ARCHIVES)})."
    if team is not None and not may_in_team(user, team, "operate"):
        faults["team"] = "Only operators and owners of the team add its problems."
    elif hidden := _narrowed(user, name, team):
        faults["team"] = hidden
    if faults:
        raise ValidationError(faults)
    _check_may_add(user)


def _narrowed(user: User, name: str, team: Team | None) -> str:
    """Say why a new version of a problem cannot be seen by fewer than its earlier ones; empty where it is not."""
    known = Problem.objects.filter(slug=name, origin=origin_of(user)).select_related("team").first()
    if known is None or team is None or known.team == team:
        return ""
    seen_by = known.team or "everybody"
    return f"“{name}” is visible to {seen_by}, and so is every version. Choose that, or another name."


def _check_may_add(user: User) -> None:
    if not may_add_problems(user):
        raise ValidationError("Only operators and owners of a team add problems.")


@transaction.atomic
def do_upload_problem(
    user: User, name: str, file_name: str, content: bytes, team: Team | None = None
) -> ProblemUpload:
    """Store an upload for a team, None: for everybody, and queue its inspection. Raises ValidationError."""
    name, file_name = name.strip(), storable_text(file_name.lower())[-200:]
    check_upload(user, name, file_name, content, team)
    # Lock the person, so that the limit also holds for requests that come at the same time.
    lock_person(user)
    if ProblemUpload.objects.of(user).unfinished().count() >= MAX_UNFINISHED:
        raise ValidationError(f"{MAX_UNFINISHED} of your uploads are still being checked. Wait for one of them.")
    ProblemUpload.objects.of(user).filter(state=UploadState.REFUSED).delete()
    upload = ProblemUpload.objects.create(
        created_by=user, name=name, team=team, file_name=file_name, content=content
    )
    enqueue_upload(upload.pk)
    return upload


def do_claim_upload(upload_id: int) -> ProblemUpload | None:
    """Claim an upload for this worker. Return None where there is nothing to do now."""
    changes = {"state": UploadState.RUNNING, "fence": F("fence") + 1, "lease_until": Now() + LEASE}
    if not ProblemUpload.objects.claimable().filter(pk=upload_id).update(**changes):
        return None
    # Its author may have discarded it since.
    upload = ProblemUpload.objects.filter(pk=upload_id).first()
    if upload is not None and upload.fence > MAX_CLAIMS:
        do_refuse_upload(upload, ["The worker that checked this was lost each time. It may use too much memory."])
        return None
    return upload


def do_finish_inspection(upload: ProblemUpload, inspection: Inspection) -> bool:
    """Store what a worker found. Return False where another worker has the upload by now."""
    if inspection.complaints:
        return do_refuse_upload(upload, list(inspection.complaints))
    # The inspection holds the files that the problem will have: the upload itself is needed no longer.
    found = {"inspection": storable(wire.to_plain(inspection)), "content": b""}
    return _held(upload).update(state=UploadState.READY, lease_until=None, **found) == 1


def do_refuse_upload(upload: ProblemUpload, complaints: list[str]) -> bool:
    """Say why an upload cannot be added, and drop it. Return False where another worker has it by now.

    Text stays for `REFUSED_KEPT`, so that its author finds it in the field and can correct it.
    """
    told = [storable_text(complaint)[:1000] for complaint in complaints]
    kept = {} if upload.is_text else {"content": b""}
    return _held(upload).update(state=UploadState.REFUSED, complaints=told, lease_until=None, **kept) == 1


@transaction.atomic
def do_add_uploaded_problem(user: User, upload_id: int) -> ProblemVersion:
    """Add an upload that was inspected as a problem; asked again, return the same. Raises ValidationError.

    What is stored has been parsed in a sandbox before, so that opening it here is known to end.
    """
    upload = ProblemUpload.objects.select_for_update().filter(pk=upload_id, created_by=user).first()
    if upload is None:
        raise ValidationError("This upload was discarded.")
    if upload.version is not None:
        return upload.version
    # The role may have changed since the upload.
    _check_may_add(user)
    if upload.state != UploadState.READY:
        raise ValidationError("This upload has not passed its check.")
    inspection = wire.from_plain(Inspection, upload.inspection)
    bundle = inspection.reading.bundle
    if bundle is None:
        raise ValidationError("This upload has not passed its check.")
    try:
        version, is_new = do_import_problem(bundle, origin_of(user), warnings_of(inspection), upload.team)
    except ProblemError as error:
        raise ValidationError({"name": error.complaints}) from error
    if upload.team is None and version.problem.team is not None:
        # Checked with the upload: a new version may be shown to more people than the earlier ones, with all of them.
        Problem.objects.filter(pk=version.problem_id).update(team=None)
    upload.state, upload.version, upload.content, upload.inspection = UploadState.ADDED, version, b"", None
    upload.save(update_fields=["state", "version", "content", "inspection"])
    if is_new:
        log_action(AuditAction.PROBLEM_ADDED, user, subject=str(version.problem), version=version.number)
    return version


def warnings_of(inspection: Inspection) -> tuple[str, ...]:
    """Return the warnings to show and to keep with the version."""
    seen = inspection.examination.warnings if inspection.examination else ()
    refused = inspection.no_signature
    return (*seen, *((f"No kernels in C++, HIP or CUDA: {refused}",) if refused else ()))


def do_discard_upload(user: User, upload_id: int) -> None:
    """Delete an upload with all it holds."""
    ProblemUpload.objects.of(user).filter(pk=upload_id).delete()


def do_drop_old_uploads() -> int:
    """Delete uploads of more than a day ago and those that were refused an hour ago. Return how many."""
    refused = Q(state=UploadState.REFUSED, created_at__lt=Now() - REFUSED_KEPT)
    return ProblemUpload.objects.filter(refused | Q(created_at__lt=Now() - KEPT)).delete()[0]


def _held(upload: ProblemUpload) -> QuerySet[ProblemUpload]:
    return ProblemUpload.objects.filter(pk=upload.pk, fence=upload.fence, state=UploadState.RUNNING)

"""Inspect an uploaded problem, in a worker of the build queue."""

from __future__ import annotations

import logging

from optimizer.actions.problem_upload import do_claim_upload, do_finish_inspection, do_refuse_upload
from runners.problems.uploading import Upload, inspect
from runners.sandbox import SandboxError

logger = logging.getLogger(__name__)


def inspect_upload(upload_id: int) -> bool:
    """Read and try an upload in sandboxes and store what was found. Return False when there was nothing to do."""
    upload = do_claim_upload(upload_id)
    if upload is None:
        return False
    try:
        found = inspect(Upload(upload.name, upload.file_name, bytes(upload.content)))
    except SandboxError as error:
        logger.warning("upload %s cannot be checked: %s", upload_id, error)
        return do_refuse_upload(upload, [f"This machine cannot check problems: {error}"])
    return do_finish_inspection(upload, found)

"""Sign the jobs that wait while the site is upgraded: workers of this version refuse others."""

from __future__ import annotations

import logging
from typing import Any

from django.db import migrations

logger = logging.getLogger(__name__)


def sign_waiting(apps: Any, _schema_editor: Any) -> None:
    """Sign every job that is not over. One that cannot be read is left to be refused."""
    from optimizer.runs.dispatch import spec_from
    from runners.signing.jobs import signature_of
    from runners.signing.keyring import Keyring

    waiting = apps.get_model("optimizer", "Job").objects.filter(state__in=["queued", "running"], signature="")
    for job_id, stored in list(waiting.values_list("pk", "spec")):
        try:
            signature = signature_of(spec_from(stored), Keyring())
        except Exception:
            logger.warning("job %s cannot be signed", job_id, exc_info=True)
            continue
        waiting.filter(pk=job_id).update(signature=signature)


class Migration(migrations.Migration):
    dependencies = [("optimizer", "0030_job_signature")]

    operations = [migrations.RunPython(sign_waiting, migrations.RunPython.noop)]

"""Test who asks the harness for a profile: every run that does not decline it."""

from __future__ import annotations

import pytest

from optimizer.actions.target import do_sync_targets
from optimizer.loop import advance
from optimizer.models import Job, Target
from optimizer.runs.kernels import add_kernel
from optimizer.runs.locking import lock_run
from optimizer.search.base import Draft
from runners.job import Effort, Language, Source
from tests.factories import make_run

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("target", "language", "setting", "asked"),
    [
        ("cpu", Language.CPP, {}, True),
        ("cpu", Language.CPP, {"profile": "on_gpus"}, False),
        ("cpu", Language.CPP, {"preset": "as_published"}, False),
        ("sm_90", Language.PYTHON, {}, True),
        ("sm_90", Language.PYTHON, {"profile": "never"}, False),
    ],
)
def test_a_run_asks_for_a_closer_look_where_its_settings_say_so(
    target: str, language: Language, setting: dict[str, str], asked: bool
) -> None:
    do_sync_targets()
    run = make_run(target=Target.objects.get(key=target), settings=setting)
    advance(run.pk)

    kernel = add_kernel(lock_run(run.pk), Draft("k1", Source(language, "int own;")))

    job = Job.objects.get(evaluation__kernel=kernel, evaluation__effort=Effort.FULL)
    assert job.spec["profile"] is asked

"""Put jobs into the queue as somebody who can write to the database, but is not the site."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from optimizer import queue
from optimizer.actions.spool import do_sync_spool
from optimizer.job_source import DatabaseJobSource
from optimizer.loop import advance
from optimizer.models import Evaluation, EvaluationStatus, Job, JobState, Run
from optimizer.runs.dispatch import spec_of
from runners.dispatch.spool import Spool
from runners.job import Baseline, JobSpec, Language, ProblemBundle, Source
from runners.signing.envelope import EnvelopeError
from runners.signing.jobs import _ADDED, _canonical, check_signed, signature_of
from runners.signing.keyring import Keyring, Role
from tests.factories import QUEUE, make_run

SPEC = JobSpec(
    "evaluation-7",
    ProblemBundle("p", "native", "problem.toml", {"problem.toml": "x"}),
    "cpu",
    Source(Language.CPP, "int f();"),
    best_us={"wide": 2.0, "deep": 1e16, "tiny": 1.25e-7},
)


@pytest.fixture
def job(db: None) -> Job:
    """Return a job that waits."""
    advance(make_run().pk)
    waiting = Job.objects.order_by("pk").first()
    assert waiting is not None
    return waiting


def alter(job: Job, change: str) -> None:
    """Change a waiting job as whoever can write to the table can."""
    if change == "unsigned":
        job.signature = ""
    elif change == "signed by another":
        job.signature = signature_of(spec_of(job), Keyring(Path(Keyring().public(Role.SITE)[:8])))
    elif change == "signature of another job":
        other = Job.objects.exclude(pk=job.pk).first()
        assert other is not None
        job.signature = other.signature
    elif change == "another kernel":
        job.spec["candidate"]["text"] += "\n// altered"
    elif change == "another effort":
        job.spec["effort"] = "quick"
    else:
        job.spec["problem"] = "nonsense"
    job.save()


@pytest.mark.parametrize(
    "change",
    ["unsigned", "signature of another job", "another kernel", "another effort", "unreadable"],
)
def test_job_that_this_site_has_not_made_is_ended_with_the_reason_and_never_worked(
    job: Job, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    alter(job, change)
    assert DatabaseJobSource().claim(QUEUE, "worker") is None
    job.refresh_from_db()
    assert job.state == JobState.FAILED_INFRA and job.error.startswith("refused: the job")
    evaluation = Evaluation.objects.get(job=job)
    assert evaluation.status == EvaluationStatus.INFRA_ERROR
    assert evaluation.result["reasons"] == [job.error]


def test_job_of_another_site_is_left_to_others_and_ends_after_three_who_do_not_trust_it(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker with the wrong keys must not end the jobs of those with the right ones."""
    monkeypatch.chdir(tmp_path)
    alter(job, "signed by another")
    Job.objects.exclude(pk=job.pk).delete()
    seen = []
    for _ in range(queue.MAX_ATTEMPTS):
        assert DatabaseJobSource().claim(QUEUE, "worker") is None
        seen.append(Job.objects.get(pk=job.pk).state)
        Job.objects.update(lease_until=None)
    assert seen == [JobState.QUEUED, JobState.QUEUED, JobState.FAILED_INFRA]
    assert "which is not trusted here" in Job.objects.get(pk=job.pk).error


def test_job_as_it_was_stored_is_claimed(job: Job) -> None:
    """This is the control: the same claim, with nothing altered."""
    claim = DatabaseJobSource().claim(QUEUE, "worker")
    assert claim is not None and claim.job_id == job.pk
    check_signed(claim.spec, claim.signature, Keyring())


def test_altered_problem_is_found_in_every_job_that_uses_it(job: Job) -> None:
    from optimizer.models import ProblemVersion
    from optimizer.runs import dispatch

    version = ProblemVersion.objects.get(pk=job.spec["problem"])
    version.bundle["files"] = {name: text + "\n#" for name, text in version.bundle["files"].items()}
    ProblemVersion.objects.filter(pk=version.pk).update(bundle=version.bundle)
    dispatch._bundle.cache_clear()
    try:
        assert DatabaseJobSource().claim(QUEUE, "worker") is None
    finally:
        dispatch._bundle.cache_clear()
    job.refresh_from_db()
    assert "somebody has altered the job" in job.error


def test_altered_job_is_not_laundered_by_the_spools_own_signature(job: Job, tmp_path: Path) -> None:
    run = Run.objects.get()
    Job.objects.update(queue="spool.cpu", dispatcher="spool")
    job.refresh_from_db()
    alter(job, "another kernel")
    synced = do_sync_spool(Spool(tmp_path / "spool", Keyring()), run.target)
    job.refresh_from_db()
    assert job.state == JobState.FAILED_INFRA
    assert synced.exported == Job.objects.filter(state=JobState.RUNNING).count() > 0


def test_signature_survives_what_a_database_does_to_json(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb::text", [_text(SPEC)])
        stored = cursor.fetchone()[0]
    assert stored != _text(SPEC)
    check_signed(_spec(stored), signature_of(SPEC, Keyring()), Keyring())


@pytest.mark.parametrize("signature", ["", "zz zz", "00 00", "00", "a b c"])
def test_malformed_signature_is_none(signature: str) -> None:
    with pytest.raises(EnvelopeError):
        check_signed(SPEC, signature, Keyring())


def test_a_job_that_waited_during_an_upgrade_is_still_signed() -> None:
    from dataclasses import replace

    from runners import wire
    from runners.signing import ed25519

    # As the version before `for_target` signed it and stored it.
    old = {name: value for name, value in wire.to_plain(SPEC).items() if name != "for_target"}
    text = json.dumps(_canonical(old), sort_keys=True, separators=(",", ":")).encode()
    secret = Keyring().secret(Role.SITE)
    signature = (
        f"{ed25519.public_of(secret).hex()} {ed25519.sign(secret, b'kernelsci-job/1' + bytes(1) + text).hex()}"
    )
    check_signed(wire.from_plain(JobSpec, old), signature, Keyring())
    with pytest.raises(EnvelopeError):
        check_signed(replace(SPEC, for_target="sm_90"), signature, Keyring())


def test_every_field_that_jobs_have_got_since_keeps_old_jobs_signed() -> None:
    """Check that `_ADDED` lists every field that JobSpec has gained, since older signatures cannot cover it."""
    from dataclasses import fields

    first = {
        "job_id", "problem", "target", "candidate", "effort", "baseline", "parent", "best_us", "known_artefacts",
        "limits", "profile", "objective", "ahead", "hidden_cases", "protocol_version",
    }  # fmt: skip
    assert {field.name for field in fields(JobSpec)} == first | set(_ADDED)
    assert {name: getattr(SPEC, name) for name in _ADDED} == _ADDED


def test_signature_does_not_fit_another_job() -> None:
    from dataclasses import replace

    signature = signature_of(SPEC, Keyring())
    check_signed(SPEC, signature, Keyring())
    for other in (replace(SPEC, job_id="evaluation-8"), replace(SPEC, baseline=Baseline.COMPILE)):
        with pytest.raises(EnvelopeError):
            check_signed(other, signature, Keyring())


def _text(spec: JobSpec) -> str:
    from runners import wire

    return wire.dumps(spec)


def _spec(text: str) -> JobSpec:
    from runners import wire

    return wire.loads(JobSpec, text)


def test_upgrade_signs_the_jobs_that_wait(job: Job) -> None:
    from importlib import import_module

    from django.apps import apps

    migration: Any = import_module("optimizer.migrations.0031_sign_waiting_jobs")
    Job.objects.update(signature="")
    migration.sign_waiting(apps, None)
    assert DatabaseJobSource().claim(QUEUE, "worker") is not None

"""Test what operators rely on: health, metrics, logs, draining, backups, retention."""

from __future__ import annotations

import datetime as dt
import json
import logging
import shutil
import tarfile
from collections.abc import Iterator
from io import BytesIO, StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.utils import OperationalError
from django.test import Client
from django.utils import timezone

from kernelsci_site import health
from kernelsci_site.json_log import JsonFormatter
from kernelsci_site.services import dump
from kernelsci_site.services.instance import only_instance
from kernelsci_site.services.secret_files import restore_secrets, save_secrets
from optimizer.job_source import DatabaseJobSource
from optimizer.loop import advance
from optimizer.models import (
    CallTurn,
    Evaluation,
    Job,
    JobLog,
    Kernel,
    LlmCall,
    Measurement,
    Release,
    ReleaseState,
    Run,
    Runner,
    Target,
    ToolCall,
)
from optimizer.queries.receipts import installation_public_key
from optimizer.upkeep.retention import drop
from runners.log_context import WorkFilter, about
from tests.driven_runs import make_finished_run
from tests.factories import QUEUE, make_run

NOW = timezone.now


@pytest.mark.django_db
def test_ready_needs_database_tables_and_redis(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.get("/live").json() == {"live": True}
    assert client.get("/ready").json() == {"database": True, "migrations": True, "redis": True, "disk": True}

    monkeypatch.setattr(settings, "REDIS_SERVER_URL", "redis://127.0.0.1:1/0")
    answer = client.get("/ready")
    assert (answer.status_code, answer.json()["redis"]) == (503, False)


@pytest.mark.django_db
def test_not_ready_before_the_tables_are_those_of_this_version(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MigrationExecutor, "migration_plan", lambda *_: [("0099", False)])
    answer = client.get("/ready")
    assert (answer.status_code, answer.json()["migrations"]) == (503, False)


@pytest.mark.django_db
@pytest.mark.parametrize(("free", "status"), [(0, 503), (health.SPARE_BYTES - 1, 503), (health.SPARE_BYTES, 200)])
def test_not_ready_while_the_disk_is_full(
    client: Client, monkeypatch: pytest.MonkeyPatch, free: int, status: int
) -> None:
    asked: list[Path] = []

    def usage(path: Path) -> SimpleNamespace:
        asked.append(path)
        return SimpleNamespace(free=free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    answer = client.get("/ready")
    assert (answer.status_code, answer.json()["disk"]) == (status, status == 200)
    assert asked == [settings.VAR.root]
    assert client.get("/live").status_code == 200, "a supervisor must not restart what waits for room"


def test_live_but_not_ready_without_a_database(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(connection, "cursor", refuse)
    monkeypatch.setattr(redis.Redis, "ping", lambda _: True)
    assert client.get("/live").status_code == 200
    assert client.get("/ready").json() == {"database": False, "migrations": False, "redis": True, "disk": True}
    assert client.get("/healthz").status_code == 503


@pytest.mark.django_db
def test_metrics_count_what_the_rows_say(client: Client) -> None:
    make_finished_run(settings={"confirm": False})
    advance(make_run().pk)

    lines = client.get("/metrics").content.decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    depth = Job.objects.filter(queue=QUEUE, state="queued").count()
    correct = Evaluation.objects.filter(status="correct", verdict="faster").count()
    assert depth and correct
    assert float(values[f'kernelsci_queue_depth{{queue="{QUEUE}",state="queued"}}']) == depth
    assert float(values[f'kernelsci_queue_oldest_wait_seconds{{queue="{QUEUE}"}}']) >= 0
    assert float(values['kernelsci_evaluations_total{status="correct",verdict="faster"}']) == correct
    assert {"kernelsci_llm_cost_usd_total", "kernelsci_sockets_open"} <= set(values)
    assert float(values['kernelsci_runs{state="running"}']) == 1


@pytest.mark.django_db
def test_metrics_are_for_this_machine_or_for_who_has_the_token(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.get("/metrics", REMOTE_ADDR="203.0.113.9").status_code == 404

    monkeypatch.setattr(settings, "PROXIES", 1)
    assert client.get("/metrics").status_code == 404

    monkeypatch.setattr(settings, "METRICS_TOKEN", "a-token")
    assert client.get("/metrics").status_code == 404
    assert client.get("/metrics", headers={"Authorization": "Bearer another"}).status_code == 404
    assert client.get("/metrics", headers={"Authorization": "Bearer a-token"}).status_code == 200


def test_a_log_line_for_machines_names_run_and_job_and_stays_one_line() -> None:
    record = logging.LogRecord("runners", logging.WARNING, __file__, 1, "said %s", ('"x"\n{"run": 9}',), None)
    with about(run=3), about(job=5):
        WorkFilter().filter(record)
    line = JsonFormatter().format(record)
    told = json.loads(line)
    assert "\n" not in line
    assert (told["run"], told["job"], told["message"]) == (3, 5, 'said "x"\n{"run": 9}')
    assert record.__dict__["work"] == " [run 3, job 5]"


@pytest.mark.django_db
def test_a_drained_worker_claims_nothing_until_the_deploy_is_over() -> None:
    advance(make_run().pk)
    runner = Runner.objects.create(name="bench@box", target=Target.objects.get(key="cpu"), heartbeat_at=NOW())
    out = StringIO()

    call_command("drain", "--wait", "0", stdout=out)
    assert "All workers are idle" in out.getvalue()
    assert DatabaseJobSource().claim(QUEUE, runner.name) is None

    call_command("drain", "--undo", stdout=out)
    assert DatabaseJobSource().claim(QUEUE, runner.name) is not None


@pytest.mark.django_db
def test_draining_waits_for_jobs_under_way_and_leaves_what_people_drained() -> None:
    advance(make_run().pk)
    cpu = Target.objects.get(key="cpu")
    Runner.objects.create(name="theirs", target=cpu, heartbeat_at=NOW(), draining=True, drain_note="sam: fan")
    claim = DatabaseJobSource().claim(QUEUE, "bench@box")
    assert claim is not None

    with pytest.raises(CommandError, match=f"job {claim.job_id} at bench@box"):
        call_command("drain", "--wait", "0", stdout=StringIO())
    call_command("drain", "--undo", stdout=StringIO())
    assert Runner.objects.get(name="theirs").draining


@pytest.mark.django_db(transaction=True)
def test_a_backup_brings_everything_back_and_nothing_else(tmp_path: Path) -> None:
    run = make_finished_run(settings={"confirm": False})
    before = _content()
    file = tmp_path / "site.dump"
    assert dump.back_up(connection, file) > 1000
    assert file.stat().st_mode & 0o077 == 0

    Run.objects.filter(pk=run.pk).update(title="changed afterwards")
    JobLog.objects.create(job=Job.objects.earliest("pk"), fence=9, seq=1, text="later")
    connection.close()
    dump.restore(connection, file)
    assert _content() == before


@pytest.fixture
def another_schema() -> Iterator[None]:
    """Keep a schema of somebody else in the site's database."""
    run_sql("CREATE SCHEMA another; CREATE TABLE another.kept AS SELECT 'then' AS text")
    yield
    run_sql("DROP SCHEMA another CASCADE")


def run_sql(statements: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statements)


def tables_of_another_schema() -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT text FROM another.kept")
        return list(cursor.fetchall())


@pytest.mark.django_db(transaction=True)
def test_what_somebody_else_keeps_in_the_same_database_is_neither_saved_nor_replaced(
    tmp_path: Path, another_schema: None
) -> None:
    run, major = make_run(title="before"), dump._major(connection)
    ours, everything = tmp_path / "ours.dump", tmp_path / "everything.dump"
    dump.back_up(connection, ours)
    assert "another" not in dump._read_backup(major, "--list", str(ours))
    # As earlier versions saved it.
    dump._run(
        [dump._program("pg_dump", major), "--format=custom", f"--file={everything}"], connection.settings_dict
    )
    for file in (ours, everything):
        Run.objects.filter(pk=run.pk).update(title="after")
        run_sql("UPDATE another.kept SET text = 'now'")
        connection.close()
        dump.restore(connection, file)
        assert tables_of_another_schema() == [("now",)]
        assert Run.objects.get(pk=run.pk).title == "before"


@pytest.mark.django_db(transaction=True)
def test_tables_in_a_schema_of_another_name_are_saved_and_restored_there(tmp_path: Path) -> None:
    file = tmp_path / "site.dump"
    run_sql("""
        CREATE SCHEMA "The site"; SET search_path TO "The site";
        CREATE TABLE django_migrations AS SELECT 1 AS id; CREATE TABLE "Runs" AS SELECT 'before' AS title
    """)
    try:
        dump.back_up(connection, file)
        run_sql("UPDATE \"Runs\" SET title = 'after'; CREATE TABLE later AS SELECT 1 AS id")
        dump.restore(connection, file)
        with connection.cursor() as cursor:
            cursor.execute("SELECT title, to_regclass('later') FROM \"Runs\"")
            assert cursor.fetchall() == [("before", None)]
        run_sql("SET search_path TO public")
        with pytest.raises(dump.DumpError, match='taken from the schema "The site", and this site uses "public"'):
            dump.restore(connection, file)
    finally:
        run_sql('SET search_path TO public; DROP SCHEMA "The site" CASCADE')


@pytest.mark.django_db(transaction=True)
def test_a_backup_of_another_program_is_refused_and_changes_nothing(tmp_path: Path, another_schema: None) -> None:
    make_run()
    before, file = _content(), tmp_path / "other.dump"
    run_sql("SET search_path TO another")
    try:
        dump.back_up(connection, file)
    finally:
        run_sql("SET search_path TO public")
    with pytest.raises(dump.DumpError, match="this is no backup of a site: it has no table django_migrations"):
        dump.restore(connection, file)
    assert _content() == before


@pytest.mark.django_db(transaction=True)
def test_the_commands_refuse_to_lose_runs_and_bring_back_what_the_backup_has(tmp_path: Path) -> None:
    run, file = make_run(title="before"), str(tmp_path / "site.dump")
    call_command("backup", file, stdout=StringIO())
    Run.objects.filter(pk=run.pk).update(title="after")

    with pytest.raises(CommandError, match="--replace"):
        call_command("restore", file)
    assert Run.objects.get(pk=run.pk).title == "after"
    call_command("restore", file, "--replace", stdout=StringIO())
    assert Run.objects.get(pk=run.pk).title == "before"


@pytest.mark.django_db(transaction=True)
def test_a_lost_signing_key_comes_back_with_the_backup_and_old_receipts_are_ours_again(
    tmp_path: Path, settings: Any
) -> None:
    settings.RECEIPT_KEY = str(tmp_path / "elsewhere" / "receipts.key")
    secret, kept = settings.VAR.folder("secrets") / "provider_keys", settings.VAR.secret("provider_keys")
    before = installation_public_key()
    file, secrets, out = str(tmp_path / "site.dump"), tmp_path / "site.secrets", StringIO()
    call_command("backup", file, secrets=secrets, stdout=out)
    assert "receipts.key" in out.getvalue() and "provider_keys" in out.getvalue()
    assert secrets.stat().st_mode & 0o077 == 0

    # Another machine, which has made secrets of its own already.
    settings.RECEIPT_KEY = str(tmp_path / "another" / "receipts.key")
    secret.write_text("made at the first command")
    assert installation_public_key() != before
    call_command("restore", file, secrets=secrets, stdout=StringIO())
    assert installation_public_key() == before
    assert settings.VAR.secret("provider_keys") == kept
    assert Path(settings.RECEIPT_KEY).stat().st_mode & 0o077 == 0


@pytest.mark.django_db(transaction=True)
def test_a_backup_says_what_is_lost_without_the_secrets(tmp_path: Path) -> None:
    out = StringIO()
    call_command("backup", str(tmp_path / "site.dump"), stdout=out)
    assert "receipts get another key" in out.getvalue()


def test_passwords_of_this_machines_own_servers_are_not_saved(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir()
    for name in ("django", "postgres", "redis", "redis.conf"):
        (folder / name).write_text(name)
    assert save_secrets(folder, tmp_path / "receipts.key", tmp_path / "site.secrets") == ["django"]


@pytest.mark.parametrize("name", ["../../evil", "/etc/evil", ".hidden", "a/b", "link", "large"])
def test_a_file_of_secrets_that_is_none_of_ours_writes_nothing(name: str, tmp_path: Path) -> None:
    file, folder = tmp_path / "site.secrets", tmp_path / "var" / "secrets"
    with tarfile.open(file, "w") as archive:
        good = tarfile.TarInfo("django")
        good.size = 1
        archive.addfile(good, BytesIO(b"x"))
        bad = tarfile.TarInfo(name)
        if name == "link":
            bad.type, bad.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(bad)
        else:
            bad.size = 100_000 if name == "large" else 1
            archive.addfile(bad, BytesIO(b"x" * bad.size))
    with pytest.raises(dump.DumpError, match="not a backup of secrets"):
        restore_secrets(file, folder, folder / "receipts.key")
    file.write_bytes(b"no archive")
    with pytest.raises(dump.DumpError, match="not a backup of secrets"):
        restore_secrets(file, folder, folder / "receipts.key")
    assert not folder.exists()


@pytest.mark.django_db(transaction=True)
def test_nothing_is_restored_under_a_running_site(tmp_path: Path) -> None:
    file = tmp_path / "site.dump"
    file.touch()
    with only_instance(settings.VAR), pytest.raises(CommandError, match="already running"):
        call_command("restore", str(file))


@pytest.mark.django_db(transaction=True)
def test_half_a_backup_changes_nothing(tmp_path: Path) -> None:
    make_run()
    before = _content()
    file = tmp_path / "site.dump"
    dump.back_up(connection, file)
    file.write_bytes(file.read_bytes()[:-2000])

    connection.close()
    with pytest.raises(dump.DumpError):
        dump.restore(connection, file)
    assert _content() == before


def _content() -> dict[str, list[object]]:
    models = [Run, Kernel, Evaluation, Measurement, Job, JobLog]
    return {model.__name__: list(model._default_manager.order_by("pk").values()) for model in models}


@pytest.mark.django_db
def test_retention_drops_samples_prompts_and_logs_of_old_runs_and_keeps_what_they_said() -> None:
    run = _aged_run()
    medians = list(Measurement.objects.order_by("pk").values_list("median_us", flat=True))

    now = NOW()
    assert drop("samples", now - dt.timedelta(days=90)) == len(medians) > 0
    assert (drop("prompts", now), drop("logs", now)) == (1, 1)

    assert list(Measurement.objects.order_by("pk").values_list("median_us", flat=True)) == medians
    assert not Measurement.objects.exclude(samples_us=[]).exists()
    call = LlmCall.objects.get(run=run)
    assert (call.messages, call.answer_text) == ([], "an answer")


@pytest.mark.django_db
def test_retention_leaves_runs_that_ended_lately_or_not_at_all() -> None:
    make_finished_run(settings={"confirm": False})
    advance(make_run().pk)
    assert [drop(kind, NOW() - dt.timedelta(days=90)) for kind in ("samples", "prompts", "logs")] == [0, 0, 0]


@pytest.mark.django_db
def test_retention_never_touches_the_evidence_of_a_released_kernel_or_of_its_ancestors() -> None:
    run = _aged_run()
    child = run.kernels.filter(parent_links__isnull=False).latest("number")
    family = {child.pk, *child.parent_links.values_list("parent_id", flat=True)}
    Release.objects.create(kernel=child, state=ReleaseState.RELEASED, released_at=NOW())
    LlmCall.objects.filter(run=run).first().kernels.add(child)  # type: ignore[union-attr]

    drop("samples", NOW())
    assert drop("prompts", NOW()) == 0
    kept = set(Measurement.objects.exclude(samples_us=[]).values_list("evaluation__kernel_id", flat=True))
    assert len(family) > 1
    assert kept == family & set(Measurement.objects.values_list("evaluation__kernel_id", flat=True))


@pytest.mark.django_db
def test_retention_drops_the_logs_of_tool_calls_except_those_behind_a_released_kernel() -> None:
    run = _aged_run()
    JobLog.objects.all().delete()
    kernel = run.kernels.latest("number")
    Release.objects.create(kernel=kernel, state=ReleaseState.RELEASED, released_at=NOW())
    for key in ("released", "other"):
        turn = CallTurn.objects.create(call=LlmCall.objects.create(run=run, key=key, role="solo"), number=1)
        job = Job.objects.create(queue="build", spec={})
        ToolCall.objects.create(turn=turn, run=run, job=job, number=1, name="build")
        JobLog.objects.create(job=job, fence=1, seq=1, text=key)
    LlmCall.objects.get(key="released").kernels.add(kernel)

    assert drop("logs", NOW()) == 1
    assert JobLog.objects.get().text == "released"


def _aged_run() -> Run:
    """Make a finished run of a year ago with samples, a prompt and a log."""
    run = make_finished_run(settings={"confirm": False})
    Run.objects.filter(pk=run.pk).update(finished_at=NOW() - dt.timedelta(days=365))
    LlmCall.objects.create(run=run, key="k", role="solo", provider="p", messages=[{"role": "user"}], state="answered",
                           answer_text="an answer")  # fmt: skip
    JobLog.objects.all().delete()
    JobLog.objects.create(job=Job.objects.earliest("pk"), fence=1, seq=1, text="compiled")
    return run

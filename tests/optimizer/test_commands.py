"""Test the commands that do what the pages do: report, findings, webhooks, runners."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from optimizer.actions.target import do_sync_targets
from optimizer.models import Finding, Runner, Team, TeamRole, User, Webhook
from tests.driven_runs import make_finished_run
from tests.factories import make_run, make_team, make_user

pytestmark = pytest.mark.django_db


def told(*words: str) -> str:
    out = StringIO()
    call_command(*words, stdout=out, stderr=StringIO())
    return out.getvalue()


# report


def test_a_report_is_html_or_markdown_by_its_ending(team: Team, tmp_path: Path) -> None:
    run = make_finished_run(team)
    for ending, beginning in ((".html", "<!doctype html"), (".md", "# ")):
        told("report", str(run.pk), str(tmp_path / f"run{ending}"))
        assert (tmp_path / f"run{ending}").read_text().lower().startswith(beginning)
    assert told("report", str(run.pk), "-").startswith("# ")


def test_a_report_of_no_run_or_of_another_form_is_refused(team: Team, tmp_path: Path) -> None:
    run = make_run(team)
    for words in (
        ("0", str(tmp_path / "x.md")),
        (str(run.pk), str(tmp_path / "x.pdf")),
        (str(run.pk), "/no/where.md"),
    ):
        with pytest.raises(CommandError):
            told("report", *words)


# findings


def test_a_finding_is_written_listed_and_edited(team: Team, owner: User, tmp_path: Path) -> None:
    do_sync_targets()
    text = tmp_path / "text.md"
    text.write_text("Tiles of 64 win.")
    by = ("--user", owner.username)
    told("findings", *by, "add", "Tiles", "--team", team.slug, "--target", "cpu", "--text", str(text))
    first = Finding.objects.get(team=team)
    assert "Tiles" in told("findings", *by, "list", "--target", "cpu")
    text.write_text("Tiles of 128 win.")
    told("findings", *by, "edit", str(first.pk), "--text", str(text))
    assert "superseded" in told("findings", *by, "show", str(first.pk))
    newer = Finding.objects.get(team=team, superseded_by=None)
    assert "128" in told("findings", *by, "show", str(newer.pk))
    with pytest.raises(CommandError, match="newer"):
        told("findings", *by, "edit", str(first.pk), "--text", str(text))


def test_a_viewer_writes_no_finding_and_an_outsider_reads_none(team: Team, owner: User, tmp_path: Path) -> None:
    text = tmp_path / "text.md"
    text.write_text("x")
    viewer, outsider = make_user(team, TeamRole.VIEWER), make_user(make_team())
    with pytest.raises(CommandError):
        told("findings", "--user", viewer.username, "add", "T", "--team", team.slug, "--text", str(text))
    row = Finding.objects.create(team=team, title="Ours", text="x", origin="person")
    with pytest.raises(CommandError):
        told("findings", "--user", outsider.username, "show", str(row.pk))


# webhooks


def test_a_webhook_is_added_with_a_secret_listed_and_removed(team: Team, owner: User) -> None:
    by = ("--user", owner.username)
    secret = told("webhooks", *by, "add", "https://93.184.215.14/hook", "--team", team.slug).strip()
    row = Webhook.objects.get(team=team)
    assert row.read_secret() == secret
    assert secret not in told("webhooks", *by, "list") and "93.184.215.14" in told("webhooks", *by, "list")
    assert told("webhooks", *by, "deliveries", str(row.pk)) == ""
    told("webhooks", *by, "remove", str(row.pk))
    assert not Webhook.objects.exists()


def test_only_owners_set_up_webhooks(team: Team) -> None:
    with pytest.raises(CommandError):
        told("webhooks", "--user", make_user(team).username, "add", "https://93.184.215.14/h", "--team", team.slug)


# runners


def test_one_runner_is_drained_with_a_reason_and_let_go_on(team: Team, owner: User) -> None:
    run = make_run(team)
    for name in ("a", "b"):
        Runner.objects.create(name=name, target=run.target, heartbeat_at=timezone.now())
    told("runners", "--user", owner.username, "drain", "a", "--note", "new driver")
    assert "draining" in (listed := told("runners", "list")).splitlines()[0] and "new driver" in listed
    assert Runner.objects.get(name="b").draining is False
    told("runners", "--user", owner.username, "undrain", "a")
    assert Runner.objects.get(name="a").draining is False
    with pytest.raises(CommandError, match="known are a, b"):
        told("runners", "--user", owner.username, "drain", "c")

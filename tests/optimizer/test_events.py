"""Test the fan-out of events, and what must not be left to it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from optimizer.actions.review import do_publish_review
from optimizer.events import record as fan_out
from optimizer.events.payloads import RunNoted
from optimizer.events.record import SUBSCRIBERS, record
from optimizer.models import AuditAction, AuditEntry, Release, ReviewVerdict, RunEvent
from optimizer.runs.best import update_best
from optimizer.runs.locking import lock_run
from tests.driven_runs import make_finished_run
from tests.factories import make_run, make_team, make_user

pytestmark = pytest.mark.django_db


class BrokenError(Exception):
    """Represent any failure."""


def broken(*_args: Any, **_more: Any) -> None:
    raise BrokenError


def test_every_event_reaches_webhooks_people_campaigns_and_sockets_in_this_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rooms = [one.__module__.rpartition(".")[2] for one in SUBSCRIBERS]
    assert rooms == ["webhooks", "notices", "campaigns", "sockets"]
    heard: list[tuple[str, int]] = []
    listeners = tuple(lambda event, name=name: heard.append((name, event.seq)) for name in ("first", "second"))
    monkeypatch.setattr(fan_out, "SUBSCRIBERS", listeners)
    run = make_run()
    with transaction.atomic():
        event = record(lock_run(run.pk), RunNoted(text="x"))
    assert heard == [("first", event.seq), ("second", event.seq)]


def test_an_event_is_not_stored_where_a_subscriber_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run()
    before = RunEvent.objects.filter(run=run).count()
    monkeypatch.setattr(fan_out, "SUBSCRIBERS", (broken,))
    with pytest.raises(BrokenError), transaction.atomic():
        record(lock_run(run.pk), RunNoted(text="x"))
    assert RunEvent.objects.filter(run=run).count() == before


def test_a_verdict_is_not_published_without_its_audit_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    team = make_team()
    run, reviewer = make_finished_run(team), make_user(team)
    kernel = run.best_kernel
    monkeypatch.setattr(AuditEntry, "add", broken)
    with pytest.raises(BrokenError):
        do_publish_review(reviewer, run, kernel, ReviewVerdict.APPROVE)
    assert not run.reviews.exists()
    monkeypatch.undo()
    do_publish_review(reviewer, run, kernel, ReviewVerdict.APPROVE)
    assert AuditEntry.objects.get(action=AuditAction.KERNEL_REVIEWED).details == {"verdict": "approve"}


def test_a_kernel_does_not_begin_to_lead_while_releases_cannot_be_superseded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = make_finished_run()
    best, events = run.best_kernel_id, RunEvent.objects.filter(run=run).count()
    run.best_kernel = None
    run.save(update_fields=["best_kernel"])
    monkeypatch.setattr(type(Release.objects), "supersede", broken)
    with pytest.raises(BrokenError), transaction.atomic():
        update_best(lock_run(run.pk))
    assert RunEvent.objects.filter(run=run).count() == events
    run.refresh_from_db()
    assert (best is not None, run.best_kernel_id) == (True, None)

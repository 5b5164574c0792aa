"""Test webhooks: who is told, how it is signed, what is tried again, where nothing is ever sent."""

from __future__ import annotations

import base64
import datetime as dt
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from standardwebhooks import Webhook as Signer
from standardwebhooks import WebhookVerificationError

from optimizer.actions.run import do_stop_run
from optimizer.actions.webhook import PAUSES_S, claim, do_make_webhook, finish
from optimizer.events.payloads import BestChanged, RunStateChanged
from optimizer.events.record import record
from optimizer.loop import advance
from optimizer.models import Run, Team, TeamRole, User, Webhook, WebhookDelivery
from optimizer.secrets import keys
from optimizer.upkeep.sweep import _due_deliveries
from optimizer.upkeep.webhook_sender import deliver
from tests.factories import make_run, make_team, make_user

pytestmark = pytest.mark.django_db(transaction=True)
EVENTS = ["run.finished", "run.best"]
PUBLIC = "https://93.184.215.14/hook"  # a public address that no test connects to


class Receiver(HTTPServer):
    """Remember what it was told; answer `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.told: list[tuple[dict[str, str], str]] = []
        self.status = 204
        self.url = f"http://127.0.0.1:{self.server_port}/hook"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.told.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(self.server.status)
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()

    def log_message(self, *_args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def root() -> User:
    return User.objects.create_superuser("root")


def best(run: Run, announce: bool = True) -> None:
    record(run, BestChanged(number=1, kernel=1, time_us=5.0, speedup=2.0, speedup_low=1.9, speedup_high=2.1,
                            confirmed=False, announce=announce))  # fmt: skip


def due(row: WebhookDelivery) -> WebhookDelivery:
    WebhookDelivery.objects.filter(pk=row.pk).update(next_at=timezone.now() - dt.timedelta(seconds=1))
    return row


# who is told of what


def test_a_new_best_and_the_end_of_a_run_are_told_once_each(team: Team, root: User) -> None:
    do_make_webhook(root, team, PUBLIC, EVENTS)
    run = make_run(team)
    best(run)
    best(run, announce=False)  # statistics do not support it: nobody is told
    record(run, RunStateChanged(state="paused"))
    do_stop_run(root, run)
    for _ in range(3):
        advance(run.pk)
    rows = list(WebhookDelivery.objects.order_by("pk"))
    assert [row.event for row in rows] == ["run.best", "run.finished"]
    told = json.loads(rows[1].body)
    assert (told["run"], told["event"], told["payload"]["state"]) == (run.pk, "run.finished", "stopped")


def test_nobody_is_told_of_private_runs_or_of_what_they_did_not_ask_for(team: Team, root: User) -> None:
    do_make_webhook(root, team, PUBLIC, ["run.finished"])
    do_make_webhook(root, make_team(), PUBLIC, EVENTS)
    best(make_run(team))
    best(make_run(team, is_private=True))
    assert not WebhookDelivery.objects.exists()


# how it is sent


def test_a_receiver_verifies_what_arrives_with_a_library_of_the_standard(
    team: Team, root: User, receiver: Receiver
) -> None:
    _, secret = do_make_webhook(root, team, receiver.url, EVENTS, allow_private=True)
    best(make_run(team))
    row = WebhookDelivery.objects.get()
    assert deliver(row.pk) == "delivered"
    headers, body = receiver.told[0]
    assert Signer(secret).verify(body, headers)["event"] == "run.best"
    assert headers["webhook-id"] == f"msg_{row.pk}"
    assert "authorization" not in headers and "cookie" not in headers
    for signer, text in ((Signer(b"another"), body), (Signer(secret), f"{body} ")):
        with pytest.raises(WebhookVerificationError):
            signer.verify(text, headers)


def test_a_secret_in_the_url_safe_alphabet_signs_in_the_standard_one(
    team: Team, root: User, receiver: Receiver
) -> None:
    hook, _ = do_make_webhook(root, team, receiver.url, EVENTS, allow_private=True)
    key = b"\xfb\xff" * 16  # its base64 has the letters in which the alphabets differ
    hook.secret_encrypted = keys.encrypt("whsec_" + base64.urlsafe_b64encode(key).decode().rstrip("="))
    hook.save()
    best(make_run(team))
    deliver(WebhookDelivery.objects.get().pk)
    headers, body = receiver.told[0]
    assert Signer(key).verify(body, headers)["event"] == "run.best"


def test_what_was_delivered_is_not_sent_again(team: Team, root: User, receiver: Receiver) -> None:
    do_make_webhook(root, team, receiver.url, EVENTS, allow_private=True)
    best(make_run(team))
    row = WebhookDelivery.objects.get()
    assert [deliver(row.pk), deliver(row.pk)] == ["delivered", "not due"]
    assert len(receiver.told) == 1


@pytest.mark.parametrize("status", [500, 404, 302])
def test_a_refusal_is_tried_again_later_and_a_redirect_is_not_followed(
    team: Team, root: User, receiver: Receiver, status: int
) -> None:
    receiver.status = status
    do_make_webhook(root, team, receiver.url, EVENTS, allow_private=True)
    best(make_run(team))
    row = WebhookDelivery.objects.get()
    assert deliver(row.pk) == "waiting"
    row.refresh_from_db()
    pause = (row.next_at - timezone.now()).total_seconds()
    assert (row.attempts, row.last_status) == (1, status)
    assert PAUSES_S[0] - 20 < pause <= PAUSES_S[0]
    assert _due_deliveries() == []
    receiver.status = 200
    due(row)
    assert _due_deliveries() == [row.pk]
    assert deliver(row.pk) == "delivered"


def test_patience_ends(team: Team, root: User) -> None:
    do_make_webhook(root, team, PUBLIC, EVENTS)
    best(make_run(team))
    row = WebhookDelivery.objects.get()
    for _ in range(len(PAUSES_S) + 1):
        claimed = claim(due(row).pk)
        assert claimed is not None
        finish(claimed, 500, "answered 500")
    row.refresh_from_db()
    assert row.state == "given_up"
    assert claim(due(row).pk) is None


def test_of_two_senders_one_sends_and_a_lost_one_leaves_it_to_the_sweep(team: Team, root: User) -> None:
    do_make_webhook(root, team, PUBLIC, EVENTS)
    best(make_run(team))
    row = WebhookDelivery.objects.get()
    assert claim(row.pk) is not None
    assert claim(row.pk) is None
    assert _due_deliveries() == []
    assert _due_deliveries() == [] and claim(due(row).pk) is not None


# where nothing is sent


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/x", "http://[::1]/x", "http://169.254.169.254/latest", "http://10.0.0.1/", "ftp://example.com/",
     "http://user:pw@203.0.113.9/", "http://[::ffff:127.0.0.1]/", "file:///etc/passwd", "javascript:alert(1)", ""],
)  # fmt: skip
def test_an_owner_cannot_point_a_webhook_into_the_network(team: Team, url: str) -> None:
    owner = make_user(team, TeamRole.OWNER)
    with pytest.raises(ValidationError):
        do_make_webhook(owner, team, url, EVENTS, allow_private=True)


def test_metadata_addresses_are_refused_even_for_administrators(team: Team, root: User) -> None:
    with pytest.raises(ValidationError):
        do_make_webhook(root, team, "http://169.254.169.254/", EVENTS, allow_private=True)


def test_an_address_that_turns_private_later_is_not_connected_to(
    team: Team, root: User, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook, _ = do_make_webhook(root, team, PUBLIC, EVENTS)
    Webhook.objects.filter(pk=hook.pk).update(url=receiver.url)
    best(make_run(team))
    row = WebhookDelivery.objects.get()
    assert deliver(row.pk) == "waiting"
    row.refresh_from_db()
    assert "private address" in row.last_error
    assert receiver.told == []


@pytest.mark.parametrize("role", [TeamRole.VIEWER, TeamRole.REVIEWER, TeamRole.OPERATOR])
def test_only_owners_decide_who_is_told(client: Client, team: Team, root: User, role: TeamRole) -> None:
    hook, _ = do_make_webhook(root, team, PUBLIC, EVENTS)
    person = make_user(team, role)
    with pytest.raises(ValidationError):
        do_make_webhook(person, team, PUBLIC, EVENTS)
    client.force_login(person)
    assert PUBLIC not in client.get(reverse("webhooks")).content.decode()
    assert client.post(reverse("webhook_delete", args=[hook.pk])).status_code == 404
    assert Webhook.objects.count() == 1


def test_the_secret_is_shown_once_and_stored_encrypted(client: Client, team: Team, root: User) -> None:
    client.force_login(root)
    body = {"team": team.slug, "url": PUBLIC, "events": EVENTS}
    made = client.post(reverse("webhooks"), body).content.decode()
    secret = made.split('id="secret">')[1].split("<")[0]
    hook = Webhook.objects.get()
    assert hook.read_secret() == secret and secret not in hook.secret_encrypted
    assert secret not in client.get(reverse("webhooks")).content.decode()

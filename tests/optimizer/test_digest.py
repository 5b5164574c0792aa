"""Test digests as an SMTP server on this machine receives them from the task that the timer starts."""

from __future__ import annotations

import datetime as dt
import email.policy
from collections.abc import Iterator
from email.message import EmailMessage
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session
from django.test import Client
from django.utils import timezone

from optimizer.actions.review import Place, Words, do_say
from optimizer.models import Notification, Team, User
from optimizer.tasks import mail_digests
from tests.factories import make_run, make_team, make_user
from tests.site.site_process import free_port

pytestmark = pytest.mark.django_db
SITE = "https://kernels.example.org"
HOSTILE = "<script>alert(1)</script>\r\nBcc: all@example.org"


class Postbox:
    """Keep what arrives; turn away whom it is told to."""

    def __init__(self) -> None:
        self.arrived: list[tuple[list[str], EmailMessage]] = []
        self.refused: set[str] = set()

    async def handle_RCPT(
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        """Accept the recipient or not."""
        if address in self.refused:
            return "550 no such person"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:
        """Keep one message, as it came over the wire."""
        assert isinstance(envelope.content, bytes)
        message = email.message_from_bytes(envelope.content, _class=EmailMessage, policy=email.policy.default)
        self.arrived.append(([str(address) for address in envelope.rcpt_tos], message))
        return "250 OK"


@pytest.fixture
def postbox(settings: Any) -> Iterator[Postbox]:
    box = Postbox()
    server = Controller(box, hostname="127.0.0.1", port=free_port())
    server.start()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_USE_TLS = "127.0.0.1", server.port, False
    settings.DEFAULT_FROM_EMAIL, settings.SITE_ADDRESS = "kernels@example.org", SITE
    yield box
    server.stop()


@pytest.fixture
def team() -> Team:
    return make_team()


def member(team: Team, name: str) -> User:
    user = make_user(team, name=name)
    user.email = f"{name}@example.org"
    user.save(update_fields=["email"])
    return user


def mention(team: Team, *names: str, title: str = "Softmax") -> None:
    """Store a comment of an hour ago that mentions these people."""
    author = make_user(team)
    do_say(author, Place(make_run(team, author, title=title)), Words(" ".join(f"@{name}" for name in names)))
    Notification.objects.update(created_at=timezone.now() - dt.timedelta(hours=1))


def test_a_digest_arrives_as_plain_text_with_whole_addresses(postbox: Postbox, team: Team) -> None:
    member(team, "grace")
    mention(team, "grace", title=HOSTILE)
    assert mail_digests() == 1
    [(recipients, message)] = postbox.arrived
    assert recipients == ["grace@example.org"]
    assert (message["To"], message["From"], message["Bcc"]) == ("grace@example.org", "kernels@example.org", None)
    assert (message.get_content_type(), message.is_multipart()) == ("text/plain", False)
    assert str(message["Subject"]).startswith("[Kernel Scientist] ")
    links = [word for word in message.get_content().split() if "/" in word and "script" not in word]
    assert all(link.startswith(f"{SITE}/") for link in links), links
    assert f"{SITE}/notifications/settings/" in links


def test_the_links_of_a_digest_lead_to_pages(postbox: Postbox, team: Team, client: Client) -> None:
    client.force_login(member(team, "grace"))
    mention(team, "grace")
    mail_digests()
    [(_, message)] = postbox.arrived
    paths = [word.removeprefix(SITE) for word in message.get_content().split() if word.startswith(SITE)]
    assert [client.get(path.partition("#")[0], follow=True).status_code for path in paths] == [200, 200]


def test_letters_of_every_alphabet_arrive_as_written(postbox: Postbox, team: Team) -> None:
    member(team, "grace")
    mention(team, "grace", title="Größe 数 🚀")
    mail_digests()
    assert "Größe 数 🚀" in postbox.arrived[0][1].get_content()


def test_somebody_whom_the_server_turns_away_keeps_nobody_elses_mail_back(postbox: Postbox, team: Team) -> None:
    for name in ("ada", "grace"):
        member(team, name)
    postbox.refused = {"ada@example.org"}
    mention(team, "ada", "grace")
    assert mail_digests() == 1
    assert [recipients for recipients, _ in postbox.arrived] == [["grace@example.org"]]

"""Keep sockets open beyond the session, from another port, and pages' titles out of order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.auth import AuthMiddlewareStack
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.core.cache import cache
from django.db import connection
from django.test import Client, override_settings

from kernelsci_site.origins import is_own
from optimizer.live import consumers
from optimizer.live.routing import websocket_urlpatterns
from optimizer.models import Run, User
from tests.factories import make_run, make_team, make_user

AT_ONCE_S = 5.0


@pytest.fixture(autouse=True)
def _no_regular_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only what closes a socket at once close it."""
    monkeypatch.setattr(consumers, "HEARTBEAT_S", 600.0)


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


async def socket_of(client: Client, run: Run) -> WebsocketCommunicator:
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
    application: Any = AuthMiddlewareStack(URLRouter(websocket_urlpatterns))  # type: ignore[arg-type]
    socket = WebsocketCommunicator(application, f"/ws/runs/{run.pk}/", headers=[(b"cookie", cookie.encode())])
    await socket.connect()
    await socket.receive_json_from(AT_ONCE_S)
    return socket


async def closed_with(socket: WebsocketCommunicator) -> int | None:
    """Return the code with which the socket closes at once, or None."""
    try:
        async with asyncio.timeout(AT_ONCE_S):
            while (message := await socket.receive_output(AT_ONCE_S))["type"] != "websocket.close":
                pass
    except TimeoutError:
        return None
    return int(message["code"])


def signs_out(client: Client, user: User) -> None:
    client.post("/sign-out/")


def changes_the_password(client: Client, user: User) -> None:
    user.set_password("another long passphrase")
    user.save()


def ends_every_session(client: Client, user: User) -> None:
    client.session.flush()


def nothing(client: Client, user: User) -> None:
    """Save the person unchanged, as the control: the socket stays open."""
    user.save()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("end", "code"), [(signs_out, 4401), (changes_the_password, 4401), (ends_every_session, 4401), (nothing, None)]
)
async def test_a_socket_closes_at_once_with_its_session(
    end: Callable[[Client, User], None], code: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.attack.test_sessions.AT_ONCE_S", 2.0 if code is None else 10.0)
    run = await sync_to_async(make_run)()
    user = await sync_to_async(make_user)(run.team)
    client = await sync_to_async(signed_in)(user)
    socket = await socket_of(client, run)
    await sync_to_async(end)(client, user)
    assert await closed_with(socket) == code
    await socket.disconnect()


@pytest.mark.parametrize(
    ("origin", "host", "own"),
    [
        ("http://site.example:8000", "site.example:8000", True),
        ("https://site.example", "site.example", True),
        ("https://site.example:443", "SITE.example", True),
        ("http://[::1]:8000", "[::1]:8000", True),
        ("https://pages.other.example", "site.example", True),  # trusted by the settings
        ("http://site.example:9000", "site.example:8000", False),
        ("http://site.example", "site.example:8000", False),
        ("https://site.example:8443", "site.example", False),
        ("https://evil.example", "site.example", False),
        ("https://evil.example", "evil.example", False),  # a host that is not ours
        ("null", "site.example", False),
        ("", "site.example", False),
        ("http://site.example:99999", "site.example", False),
        ("file://site.example", "site.example", False),
    ],
)
def test_a_socket_opens_for_the_same_host_and_port_only(origin: str, host: str, own: bool) -> None:
    hosts = ["site.example", "[::1]"]
    with override_settings(ALLOWED_HOSTS=hosts, CSRF_TRUSTED_ORIGINS=["https://*.other.example"]):
        assert is_own(origin, host) is own


@pytest.mark.django_db(transaction=True)
def test_24_tries_at_once_are_five() -> None:
    user = make_user(make_team())
    cache.clear()
    answers: list[str] = []
    start = threading.Barrier(24)

    def attempt() -> None:
        client = Client()
        start.wait()
        answers.append(client.post("/sign-in/", {"username": user.username, "password": "wrong"}).content.decode())
        connection.close()

    tries = [threading.Thread(target=attempt) for _ in range(24)]
    for one in tries:
        one.start()
    for one in tries:
        one.join()
    assert sum("Name or password is wrong" in answer for answer in answers) <= 5
    assert len(answers) == 24


@pytest.mark.django_db
def test_titles_keep_their_order() -> None:
    run = make_run()
    run.title = "\u202ereversed\u2066 \u200fte\u00e9\u200dxt"
    run.save()
    assert run.title == Run.objects.get(pk=run.pk).title == "reversed te\u00e9\u200dxt"
    Run.objects.filter(pk=run.pk).update(title="a\u202eb")
    assert Run.objects.get(pk=run.pk).title == "ab"

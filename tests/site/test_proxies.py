"""Test whose request it is behind proxies, and that nobody else can be pretended to be."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from itertools import count, repeat
from typing import Any

import pytest
from allauth.account.adapter import get_adapter
from allauth.core.internal import ratelimit
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.handlers.asgi import ASGIRequest
from django.test import RequestFactory

from kernelsci_site import environment
from kernelsci_site.cache import ForgivingRedisCache
from kernelsci_site.proxies import behind_proxies, caller_of

PROXY = ("10.0.0.1", 4711)
CALLER = b"203.0.113.9"


def client_behind(count: int, *lines: bytes) -> Any:
    """Return what the application sees as its client."""
    seen: list[Any] = []

    async def application(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["client"])

    headers = [(b"host", b"testserver"), *((b"x-forwarded-for", line) for line in lines)]
    scope = {"type": "http", "client": PROXY, "headers": headers}
    async_to_sync(behind_proxies(application, count))(scope, None, None)
    return seen[0]


@pytest.mark.parametrize("lines", [(CALLER,), (b"1.2.3.4, " + CALLER,), (b"1.2.3.4", CALLER), (b"x, , " + CALLER,)])
def test_a_caller_cannot_pretend_to_be_another_address(lines: tuple[bytes, ...]) -> None:
    assert client_behind(1, *lines) == (CALLER.decode(), 0)


def test_two_proxies_are_counted_from_the_right() -> None:
    assert client_behind(2, b"1.2.3.4, " + CALLER + b", 10.0.0.7") == (CALLER.decode(), 0)


@pytest.mark.parametrize("lines", [(), (b"",), (b"unknown",), (b"1.2.3.4:80",), (b"\xff\x00' OR 1=1",)])
def test_without_a_proxys_own_entry_it_is_whoever_is_connected(lines: tuple[bytes, ...]) -> None:
    assert client_behind(1, *lines) == PROXY


def test_pages_know_the_caller_by_that_address() -> None:
    seen: list[str] = []

    async def pages(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(ASGIRequest(scope, BytesIO()).META["REMOTE_ADDR"])

    headers = [(b"x-forwarded-for", b"1.2.3.4, " + CALLER)]
    scope = {"type": "http", "method": "GET", "path": "/", "client": PROXY, "headers": headers}
    async_to_sync(behind_proxies(pages, 1))(scope, None, None)
    assert seen == [CALLER.decode()]


def test_without_proxies_the_header_is_not_read() -> None:
    assert client_behind(0, CALLER) == PROXY


def test_one_address_has_one_spelling() -> None:
    assert caller_of([(b"x-forwarded-for", b"2001:DB8:0::1")], 1) == "2001:db8::1"


@pytest.mark.parametrize("value", ["yes", "-1", "10", "1.5", "²"])
def test_a_number_of_proxies_that_is_none_stops_the_start(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELSCI_BEHIND_PROXY", value)
    with pytest.raises(ImproperlyConfigured, match="KERNELSCI_BEHIND_PROXY"):
        environment.count("KERNELSCI_BEHIND_PROXY")


def attempts_until_told_to_wait(address: str, names: Iterator[str]) -> int:
    request = RequestFactory().post("/sign-in/", REMOTE_ADDR=address)
    for attempt in range(100):
        try:
            get_adapter().pre_authenticate(request, username=next(names))
        except ValidationError:
            return attempt
    raise AssertionError("may guess for ever")


@pytest.fixture
def redis_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratelimit, "cache", ForgivingRedisCache("redis://127.0.0.1:1/7", {}))


def test_guessing_is_slowed_down_while_redis_is_away(redis_is_away: None) -> None:
    assert attempts_until_told_to_wait("203.0.113.1", repeat("ada")) == 5
    assert attempts_until_told_to_wait("203.0.113.2", repeat("ADA")) == 5, "another address has its own count"


def test_one_password_cannot_be_tried_on_every_account(redis_is_away: None) -> None:
    assert attempts_until_told_to_wait("203.0.113.3", (f"person-{n}" for n in count())) == 50
    assert attempts_until_told_to_wait("203.0.113.4", repeat("ada")) == 5

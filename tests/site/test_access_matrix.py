"""Every address, API route and socket against everybody: what is in the table happens, and nothing is missing from it.

A new route without a row in tests/site/access_rows.py fails here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator
from django.contrib.auth.models import AnonymousUser
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from optimizer.api.root import api
from optimizer.live.routing import websocket_urlpatterns
from tests.site.access_rows import API, PAGES, RANKS, SERVICE, SOCKETS, Row
from tests.site.access_world import World, make_world

pytestmark = pytest.mark.slow  # the whole file: a test with the shared rows must not come before one that commits

PEOPLE = ("anonymous", "outsider", "viewer", "reviewer", "operator", "owner", "superuser")
STANDING = {"anonymous": "public", "outsider": "signed_in"}
BOARD = "leaderboards/<slug:slug>/<slug:key>/"
SLUGS = dict.fromkeys(
    ("problems/<slug:slug>/", BOARD, f"{BOARD}cost/", f"{BOARD}retime/", "api/v1/problems/<slug>",
     "api/v1/problems/<slug>/task"), "softmax_rows",
)  # fmt: skip
OWNER_OF_ANY = "owner_of_any"  # the outsider owns a team of their own
OF_A_LIVE_RUN = ("pause", "resume", "stop", "budget", "guidance", "labels", "archive")


# nothing is missing


def routes() -> set[str]:
    """Return every page's route, as the URL configuration has it."""
    found = {route for route in _walk(get_resolver()) if not route.startswith("api/v1/")}
    return {route for route in found if not route.startswith("static/")}


def _walk(resolver: URLResolver, prefix: str = "") -> Iterator[str]:
    for entry in resolver.url_patterns:
        route = f"{prefix}{entry.pattern}"
        if isinstance(entry, URLPattern):
            yield route
        else:
            yield from _walk(entry, route)


def operations() -> set[tuple[str, str]]:
    """Return (method, route with unnamed parameters) of everything in the API's own description."""
    described = api.get_openapi_schema()["paths"]
    return {
        (method.upper(), re.sub(r"\{\w+\}", "{}", path.removeprefix("/api/v1/")))
        for path, methods in described.items()
        for method in methods
    }


def test_every_page_has_a_row_and_every_row_a_page() -> None:
    assert {row.route for row in PAGES} == routes()


def test_every_operation_of_the_api_has_a_row() -> None:
    rows = {
        (row.method, re.sub(r"<[^>]+>", "{}", row.route.removeprefix("api/v1/").partition("?")[0])) for row in API
    }
    assert operations() == rows - {("GET", "openapi.json")}


def test_every_socket_has_a_row() -> None:
    assert {route.partition("?")[0] for route in SOCKETS} == {str(entry.pattern) for entry in websocket_urlpatterns}


THIRD_PARTY = {  # django-allauth's own pages, whose forms are sent in tests/optimizer/test_accounts.py
    "sign-in/code/", "profile/confirm/", "profile/confirm/code/", "profile/second-factor/on/",
    "profile/second-factor/off/", "profile/second-factor/codes/new/", "profile/second-factor/codes/file/",
}  # fmt: skip
PROBES = {"healthz", "live", "ready", "metrics"}  # they look at no method and change nothing
LINKS = {"join/<str:token>/", "welcome/<str:token>/"}  # sent in test_teams.py and test_welcome.py


@pytest.mark.django_db
def test_a_method_without_a_row_is_not_allowed(world: World) -> None:
    clients = browsers(world)
    rows = {(row.method, row.route) for row in PAGES}
    without = [Row(route, "superuser", 405, method) for method in ("GET", "POST") for route in sorted(routes())
               if (method, route) not in rows and route not in THIRD_PARTY | LINKS | PROBES]  # fmt: skip
    assert [f"{row.method} {row.route}" for row in without if ask(world, row, "superuser", clients) != 405] == []


# what is in the table happens


@pytest.mark.django_db
def test_everybody_who_is_refused_and_whoever_just_stands_high_enough_gets_what_the_table_says(
    world: World,
) -> None:
    assert faults_of(world, [(row, person) for row in [*PAGES, *API] for person in telling(row)]) == ""


@pytest.mark.long
@pytest.mark.django_db
def test_those_who_stand_higher_than_they_need_get_what_the_table_says(world: World) -> None:
    others = [(row, person) for row in [*PAGES, *API] for person in PEOPLE if person not in telling(row)]
    assert faults_of(world, others) == ""


def telling(row: Row) -> set[str]:
    """Return who tells where the line is: all who are refused, the lowest who is let in, and a superuser.

    Whoever is signed in sees another page than a stranger where the row says so, so one of them is asked there too.
    """
    admitted = [person for person in PEOPLE if stands(row, person)]
    signed_in = [person for person in admitted if person != "anonymous"]
    lowest = {*admitted[:1], *(signed_in[:1] if row.signed_in is not None else [])}
    return {person for person in PEOPLE if person not in admitted} | lowest | {"superuser"}


def faults_of(world: World, asked: list[tuple[Row, str]]) -> str:
    """Return a line for each answer that is not the table's."""
    clients = browsers(world)
    faults = [
        f"{row.method} {row.route} as {person}: {answer}, not {expected}"
        for row, person in asked
        if (answer := ask(world, row, person, clients)) != (expected := expectation(row, person))
    ]
    return "\n".join(faults)


def stands(row: Row, person: str) -> bool:
    """Return whether the table lets a person in."""
    if row.needs == OWNER_OF_ANY:
        return person in {"outsider", "owner", "superuser"}
    return RANKS.index(STANDING.get(person, person)) >= RANKS.index(row.needs)


def expectation(row: Row, person: str) -> int:
    """Return the status that the table means."""
    if stands(row, person):
        return row.ok if row.signed_in is None or person == "anonymous" else row.signed_in
    if person == "anonymous":
        return 401 if is_api(row) else 302
    return 404 if person == "outsider" and "<int:" in row.route else row.refused


def browsers(world: World) -> dict[str, Client]:
    """Return everybody's browser, signed in. A new one for each request would take half of the time."""
    clients = {person: Client(raise_request_exception=False) for person in PEOPLE}
    for person, client in clients.items():
        if (user := world.people[person]) is not None:
            client.force_login(user)
    return clients


def ask(world: World, row: Row, person: str, clients: dict[str, Client]) -> int:
    """Send it, look at the answer, and undo whatever it did."""
    # Tokens alone speak for people at the API.
    client = clients["anonymous" if is_api(row) else person]
    cookies = deepcopy(client.cookies)
    with transaction.atomic():
        answer = send(world, row, person, client)
        transaction.set_rollback(True)
    client.cookies = cookies
    if answer.status_code == 302 and person == "anonymous" and row.needs != "public":
        assert answer.headers["Location"].startswith("/sign-in/"), row
    return answer.status_code


def is_api(row: Row) -> bool:
    return row.route.startswith("api/v1/")


def send(world: World, row: Row, person: str, client: Client) -> HttpResponse:
    address, data = address_of(world, row), data_of(world, row)
    if is_api(row):
        headers = {"Authorization": f"Bearer {world.tokens[person]}"} if world.people[person] else {}
        body = json.dumps(data) if row.method != "GET" else ""
        return client.generic(row.method, address, body, content_type="application/json", headers=headers)  # type: ignore[return-value]
    return client.post(address, data) if row.method == "POST" else client.get(address)  # type: ignore[return-value]


def address_of(world: World, row: Row) -> str:
    """Return the row's address with the world's things in it."""
    places = dict(world.places)
    if row.route in SLUGS:
        places["slug"] = SLUGS[row.route]
    if row.route.startswith(SERVICE):
        places["user_id"] = places["service_id"]
    if row.method != "GET" and re.search(rf"/({'|'.join(OF_A_LIVE_RUN)})(/|$)", row.route):
        places["run_id"] = world.running.pk
    address = re.sub(r"<(?:\w+:)?(\w+)>", lambda found: str(places[found[1]]), row.route)
    return f"/{address}{row.query.format(**places)}"


def data_of(world: World, row: Row) -> dict[str, Any]:
    """Return what the row sends."""
    return {
        name: value.format(**world.places) if isinstance(value, str) else value for name, value in row.data.items()
    }


@pytest.mark.django_db(transaction=True)
async def test_sockets_open_for_those_whom_the_table_names() -> None:
    world = await sync_to_async(make_world)()
    faults = []
    for route, needs in SOCKETS.items():
        for person in PEOPLE:
            stays = RANKS.index(STANDING.get(person, person)) >= RANKS.index(needs)
            expected = None if stays else 4401 if person == "anonymous" else 4404
            if (code := await closed_with(world, route, person)) != expected:
                faults.append(f"{route} as {person}: {code}, not {expected}")
    assert faults == []


async def closed_with(world: World, route: str, person: str) -> int | None:
    """Return the close code of a socket, or None where it speaks."""
    address = re.sub(r"<int:(\w+)>", lambda found: str(world.places[found[1]]), route).format(**world.places)
    socket = WebsocketCommunicator(URLRouter(websocket_urlpatterns), f"/{address}")  # type: ignore[arg-type]
    socket.scope["user"] = world.people[person] or AnonymousUser()  # type: ignore[typeddict-unknown-key]
    await socket.connect()
    message = await socket.receive_output(5)
    await socket.disconnect()
    return int(message["code"]) if message["type"] == "websocket.close" else None

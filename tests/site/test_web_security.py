"""Test what an attacker's page, another site's script, hostile text, a large upload and a stolen key come up
against."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from channels.testing import WebsocketCommunicator
from django.apps import apps
from django.conf import settings
from django.db import connection, models, transaction
from django.test import Client

from optimizer.models import ApiToken, AuditEntry, Provider, Run, Team
from tests.factories import make_user
from tests.site.access_rows import API, PAGES, Row
from tests.site.access_world import World
from tests.site.test_access_matrix import address_of, data_of

BY_TOKEN = {"work/<slug:verb>/"}  # no cookie opens these, so that no other site's page can use one
CHANGES = [row for row in PAGES if row.method == "POST" and row.route not in BY_TOKEN]
KEY = "sk-canary-3f9d1c77aa"
SCRIPTS = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "'><svg/onload=alert(1)>",
    "javascript:alert(1)//",
    "[x](javascript:alert(1))",
    "</textarea><script>alert(1)</script>",
    "{{ 7|add:7 }}{% now 'Y' %}",
    "<a href='data:text/html,<script>alert(1)</script>'>x</a>",
)  # fmt: skip
LIVE_MARKUP = re.compile(r"<script>alert|<img src=x|<svg/onload|href=\"(?:javascript|data):|onerror=alert\(1\)>")


def as_superuser(world: World, **options: Any) -> Client:
    client = Client(**options)
    user = world.people["superuser"]
    assert user is not None
    client.force_login(user)
    return client


# other sites


@pytest.mark.django_db
def test_every_change_takes_a_csrf_token(world: World) -> None:
    client = as_superuser(world, enforce_csrf_checks=True)
    open_doors = [row.route for row in CHANGES
                  if client.post(address_of(world, row), data_of(world, row)).status_code != 403]  # fmt: skip
    assert open_doors == []


@pytest.mark.django_db
def test_every_change_through_the_api_takes_a_csrf_token_from_a_session(world: World) -> None:
    client = as_superuser(world, enforce_csrf_checks=True)
    open_doors = []
    for row in API:
        if row.method == "GET":
            continue
        body = json.dumps(data_of(world, row))
        answer = client.generic(row.method, address_of(world, row), body, content_type="application/json")
        if answer.status_code != 403:
            open_doors.append(f"{row.method} {row.route}: {answer.status_code}")
    assert open_doors == []


@pytest.mark.django_db
def test_looking_at_everything_changes_nothing_tells_no_key_and_allows_no_inline_script_or_frame(
    world: World,
) -> None:
    """One look at every page shows all three. Exports are written into the log, and the API notes a token's use."""
    provider = Provider.objects.get()
    provider.set_key(KEY)
    provider.save()
    client, before = as_superuser(world, raise_request_exception=False), rows_of_everything()
    pages = [row for row in PAGES if row.method == "GET"]
    exports = [row for row in pages if row.route.endswith((".csv", ".jsonl"))]
    faults = [fault for row in pages if row not in exports for fault in faults_of_a_look(client, world, row)]
    assert rows_of_everything() == before
    faults += [fault for row in exports for fault in faults_of_a_look(client, world, row)]
    for row in API:
        if row.method == "GET" and KEY in text_of(ask(client, world, row)):
            faults.append(f"{row.route} tells the key")
    assert faults == []
    with connection.cursor() as cursor:
        cursor.execute("SELECT string_agg(t::text, ',') FROM optimizer_provider t")
        assert KEY not in cursor.fetchone()[0]
    assert provider.read_key() == KEY


def faults_of_a_look(client: Client, world: World, row: Row) -> list[str]:
    """Return what is wrong with a page's text or headers."""
    answer = ask(client, world, row)
    policy, sniffing = answer.headers["Content-Security-Policy"], answer.headers["X-Content-Type-Options"]
    found = {
        "tells the key": KEY in text_of(answer),
        "allows inline code": "unsafe-inline" in policy and not policy.startswith("sandbox; default-src 'none'"),
        "allows scripts of others": "script-src 'self'" not in policy and "default-src 'none'" not in policy,
        "lets its type be guessed": sniffing != "nosniff",
    }
    return [f"{row.route} {fault}" for fault, is_so in found.items() if is_so]


def rows_of_everything() -> dict[str, str]:
    """Return a digest of every table of ours."""
    found = {}
    with connection.cursor() as cursor:
        for model in apps.get_app_config("optimizer").get_models():
            table = model._meta.db_table
            cursor.execute(
                f"SELECT md5(coalesce(string_agg(t::text, ',' ORDER BY t::text), '')) FROM \"{table}\" t"  # noqa: S608
            )
            found[table] = cursor.fetchone()[0]
    found.pop("optimizer_user")  # a sign-in by the test itself
    return found


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("origin", "opens"), [(b"http://testserver", True), (b"https://evil.example", False), (None, False)]
)
async def test_a_socket_opens_for_pages_of_this_site_only(
    origin: bytes | None, opens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The module sets it for the process that serves; this one keeps its own connections.
    monkeypatch.setenv("KERNELSCI_DATABASE_POOL", "")
    from kernelsci_site.asgi import application

    def session() -> str:
        client = Client()
        client.force_login(make_user())
        return client.cookies[settings.SESSION_COOKIE_NAME].value

    cookie = f"{settings.SESSION_COOKIE_NAME}={await sync_to_async(session)()}"
    headers = [(b"cookie", cookie.encode()), (b"host", b"testserver")]
    headers += [(b"origin", origin)] if origin else []
    socket = WebsocketCommunicator(application, "/ws/me/", headers=headers)
    connected, _ = await socket.connect()
    assert connected is opens
    if opens:
        assert (await socket.receive_json_from(5))["kind"] == "unread"
    await socket.disconnect()


# hostile text


def plant(world: World, text: str) -> int:
    """Write the text into every text column of ours that no code gives a meaning to; how many columns."""
    columns = 0
    for model in apps.get_app_config("optimizer").get_models():
        if model in (AuditEntry, ApiToken):
            continue
        names = [field for field in model._meta.concrete_fields if _is_prose(field)]
        for field in names:
            with transaction.atomic():
                cut = text[: field.max_length or None]
                model._default_manager.update(**{field.name: cut})
                columns += 1
    return columns


def _is_prose(field: models.Field[Any, Any]) -> bool:
    plain = isinstance(field, models.TextField | models.CharField) and not isinstance(field, models.SlugField)
    return plain and not field.unique and not field.choices and field.name in PROSE


PROSE = {
    "title", "text", "note", "body", "summary", "report", "guidance", "stop_reason", "description", "source",
    "drain_note", "error", "name_of_device", "device", "first_name", "last_name", "browser", "answer_text",
    "last_error", "stage",
}  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["".join(SCRIPTS[:4]), "".join(SCRIPTS[4:])], ids=["quotes", "links"])
def test_text_of_others_is_never_markup(text: str, world: World) -> None:
    assert plant(world, text) > 15
    Team.objects.update(name=text[:100])
    Run.objects.update(tags=[text[:30]])
    client = as_superuser(world, raise_request_exception=False)
    faults = []
    for row in PAGES:
        if row.method != "GET":
            continue
        answer = client.get(address_of(world, row))
        if "html" not in answer.headers.get("Content-Type", ""):
            continue
        page = answer.content.decode()
        if answer.status_code >= 500 or LIVE_MARKUP.search(page):
            faults.append(f"{row.route}: {answer.status_code}")
    assert faults == []


@pytest.mark.django_db
def test_the_search_for_markup_would_find_some() -> None:
    assert LIVE_MARKUP.search(f"<p>{SCRIPTS[0]}</p>")
    assert LIVE_MARKUP.search(f'<a href="{SCRIPTS[3]}">')


# large uploads


@pytest.mark.django_db
def test_an_upload_over_the_limit_is_refused_everywhere(world: World) -> None:
    client = as_superuser(world, raise_request_exception=False)
    flood = {"x": "a" * (settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1)}
    for row in CHANGES:
        data = "x=" + flood["x"]
        answer = client.post(address_of(world, row), data, content_type="application/x-www-form-urlencoded")
        assert answer.status_code in (302, 400, 403, 404, 413), row
    for row in API:
        if row.method in ("POST", "PUT") and row.data:
            answer = client.generic(row.method, address_of(world, row), json.dumps(flood), "application/json",
                                    headers={"Authorization": f"Bearer {world.tokens['superuser']}"})  # fmt: skip
            assert answer.status_code in (400, 413, 422), row


# keys


def ask(client: Client, world: World, row: Row) -> Any:
    """Return the answer to a row's GET; tokens open the API."""
    headers = {"Authorization": f"Bearer {world.tokens['superuser']}"} if row.route.startswith("api/v1/") else {}
    return client.get(address_of(world, row), headers=headers)


def text_of(answer: Any) -> str:
    return body_of(answer).decode(errors="replace")


def body_of(answer: Any) -> bytes:
    """Return all of an answer, streamed by whichever kind of generator or not."""

    async def collect() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    if not answer.streaming:
        return bytes(answer.content)
    return async_to_sync(collect)() if answer.is_async else b"".join(answer.streaming_content)


@pytest.mark.django_db
def test_changing_a_key_is_in_the_log_without_the_key(world: World) -> None:
    row = next(row for row in CHANGES if row.route == "providers/<int:provider_id>/")
    client = as_superuser(world)
    fields = {
        "name": "vllm", "base_url": "https://93.184.215.14/v1", "key": KEY, "api": "chat", "concurrency": "1",
        "timeout_s": "9", "silence_s": "9", "prices-TOTAL_FORMS": "0",
        "prices-INITIAL_FORMS": "0", "team": str(world.places["slug"]), "is_enabled": "on",
    }  # fmt: skip
    assert client.post(address_of(world, row), fields).status_code == 302
    entry = AuditEntry.objects.get(action="provider.saved")
    assert entry.details["key"] == "entered"
    assert KEY not in str(vars(entry))

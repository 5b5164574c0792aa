"""Send bodies that are too long, too deep or too large in their numbers, and expect a refusal in words."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from daphne import server
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st
from ninja import Field
from pydantic import ValidationError
from pytest_django import DjangoDbBlocker

from kernelsci_site.request_bodies import MOST_MESSAGE_BYTES, bound_bodies
from optimizer.actions.token import do_make_token
from optimizer.api.body import MOST_CHARACTERS, Body
from optimizer.api.root import api
from optimizer.mcp import asgi
from optimizer.models import TeamRole, TokenScope
from optimizer.text.bounded_json import MOST_DEPTH, JsonLimitError, read_json
from tests.factories import make_team, make_user
from tests.site.served import daphne, database_url

MIB = 1 << 20
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs", "Cc"])), inner),
)  # fmt: skip
HOSTILE = {
    "deep": '{"a":' * 900 + "1" + "}" * 900,
    "deeper than the stack": "[" * 200_000,
    "many": "[" + "[]," * 150_000 + "[]]",
    "long number": "9" * 4_000,
    "large number": "1e400",
    "no number": "[NaN]",
    "half a surrogate pair": '"\\ud800"',
    "NUL": '{"\\u0000": 1}',
}


@given(JSON)
def test_ordinary_json_is_decoded_as_the_standard_library_does(value: object) -> None:
    assert read_json(json.dumps(value)) == json.loads(json.dumps(value))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_json_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(JsonLimitError, match=r"^[a-zN]"):
        read_json(text)


def test_brackets_in_strings_are_no_nesting() -> None:
    assert read_json(json.dumps(["[{" * 1000, '\\"[' * 1000])) == ["[{" * 1000, '\\"[' * 1000]
    assert read_json("[" * MOST_DEPTH + "]" * MOST_DEPTH)


@pytest.mark.django_db
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_the_api_refuses_hostile_json_in_words(text: str) -> None:
    user = make_user(make_team(), TeamRole.OPERATOR)
    secret = do_make_token(user, "agent", [TokenScope.READ.value, TokenScope.RUNS.value])[1]
    body = f'{{"problem": "softmax_rows", "settings": {text}}}'
    answer = Client().post(
        "/api/v1/runs", body, content_type="application/json", headers={"Authorization": f"Bearer {secret}"}
    )
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("Cannot parse request body: ")


def unlimited_lists(part: dict[str, Any], schemas: dict[str, Any], path: str) -> Iterator[str]:
    """Yield the lists in the description of a body that may be of any length."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        # No body contains itself.
        yield from unlimited_lists(schemas[name], schemas, f"{path}.{name}")
    if part.get("type") == "array":
        if "maxItems" not in part:
            yield path
        yield from unlimited_lists(part["items"], schemas, f"{path}[]")
    for name, inner in part.get("properties", {}).items():
        yield from unlimited_lists(inner, schemas, f"{path}.{name}")
    for inner in part.get("anyOf", []):
        yield from unlimited_lists(inner, schemas, path)


def test_every_list_in_a_body_has_a_limit() -> None:
    described = api.get_openapi_schema()
    bodies = {
        f"{method} {path}": operation["requestBody"]["content"]["application/json"]["schema"]
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
        if "requestBody" in operation
    }
    schemas = described["components"]["schemas"]
    assert [found for name, body in bodies.items() for found in unlimited_lists(body, schemas, name)] == []
    control = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}}
    assert list(unlimited_lists(control, {}, "body")) == ["body.a"]


def test_texts_of_bodies_have_a_limit_also_where_their_field_states_none() -> None:
    class Example(Body):
        name: str
        text: str = Field(default="", max_length=5 * MOST_CHARACTERS)
        more: dict[str, str] = {}

    Example(name="n" * MOST_CHARACTERS, text="t" * 5 * MOST_CHARACTERS)
    for wrong in ({"name": "n" * (MOST_CHARACTERS + 1)}, {"name": "n", "more": {"a": "b" * (MOST_CHARACTERS + 1)}}):
        with pytest.raises(ValidationError):
            Example.model_validate(wrong)


@pytest.fixture(scope="module")
def address(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with django_db_blocker.unblock():
        folder: Path = tmp_path_factory.mktemp("daphne")
        with daphne(folder, {"DATABASE_URL": database_url()}) as served:
            yield served


@pytest.mark.site
@pytest.mark.parametrize("path", ["/sign-in/", "/api/v1/runs", "/mcp", "/nowhere"])
def test_a_declared_length_beyond_the_limit_is_refused_before_the_body_is_sent(address: str, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {5 * MIB}\r\n\r\n"
    assert "413" in answered(address, head.encode(), b"")


@pytest.mark.site
def test_a_body_in_chunks_is_refused_at_its_first_byte_too_many(address: str) -> None:
    head = b"POST /sign-in/ HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
    assert "at most 4 MiB" in answered(address, head, chunk * (4 * MIB // 0x10000 + 1))


@pytest.mark.site
def test_an_ordinary_client_reads_the_refusal_of_a_long_body_and_an_endless_one_is_cut_off(address: str) -> None:
    answer = httpx2.post(f"{address}/sign-in/", content=b"a" * (20 * MIB), timeout=60)
    assert (answer.status_code, answer.json()["detail"]) == (413, "A request holds at most 4 MiB.")
    sent: list[int] = []

    def chunks() -> Iterator[bytes]:
        for number in range(500):
            sent.append(number)
            yield b"a" * MIB

    with suppress(httpx2.TransportError):
        httpx2.post(f"{address}/sign-in/", content=chunks(), timeout=60)
    assert len(sent) < 200


@pytest.mark.site
def test_a_body_within_the_limit_reaches_the_application(address: str) -> None:
    """Control: three megabytes are not the server's business."""
    answer = httpx2.post(f"{address}/api/v1/runs", content=b"[" + b" " * (3 * MIB) + b"]", timeout=60)
    assert answer.status_code in (401, 403)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"a": "' + b"a" * MIB + b'"}', 413),
        (b"[" + b"[]," * 20_000 + b"[]]", 400),
        (b'{"a":' * 900 + b"1" + b"}" * 900, 400),
        (b'{"jsonrpc": "2.0"}', 200),
    ],
    ids=["long", "many", "deep", "ordinary"],
)
async def test_messages_to_mcp_are_limited_before_the_event_loop_decodes_them(
    body: bytes, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sdk(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["body"] == body
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def application(_: object) -> Any:
        return sdk

    monkeypatch.setattr(asgi, "_refused_by_site", lambda scope: None)
    monkeypatch.setattr(asgi, "_refused_token", lambda scope: None)
    monkeypatch.setattr(asgi.McpApplication, "_application", application)
    parts = [body[at : at + 65536] for at in range(0, len(body), 65536)]
    messages = [{"type": "http.request", "body": part, "more_body": part is not parts[-1]} for part in parts]
    sent: list[dict[str, Any]] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await asgi.McpApplication(sdk)({"type": "http", "path": "/mcp", "headers": []}, receive, send)
    assert sent[0]["status"] == status


def test_a_socket_takes_short_messages_only() -> None:
    bound_bodies()
    sockets = server.WebSocketFactory(None)
    assert sockets.maxMessagePayloadSize == sockets.maxFramePayloadSize == MOST_MESSAGE_BYTES


def answered(address: str, head: bytes, body: bytes) -> str:
    """Send a request as far as the server takes it, and return what it answers."""
    at = urlsplit(address)
    with socket.create_connection((at.hostname, at.port or 80), timeout=60) as connection:
        connection.sendall(head)
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(body)
        try:
            return connection.recv(4096).decode()
        except ConnectionResetError:
            return "reset without an answer"

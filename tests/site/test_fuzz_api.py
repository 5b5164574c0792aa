"""The API against requests made up from its own description, by two people's tokens: no server error, and nothing of
another team. `make fuzz-api` sends many more (FUZZ_EXAMPLES), from two processes."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from optimizer.api.root import api
from optimizer.models import Finding, Guidance, Kernel, LlmCall, Run
from tests.site.access_world import World, make_world

schemathesis = pytest.importorskip("schemathesis")
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "3"))
MARK = "belongs-to-the-team-alone-5b1f"
CALLERS = ("outsider", "superuser")
FILLED = {"run_id", "number", "finding_id", "runner_id", "webhook_id", "call_id", "slug", "guidance_id",
          "comment_id", "kind"}  # fmt: skip
# The operations are dealt out to so many tests, which may run in different processes.
SHARES = 4
pytestmark = [pytest.mark.slow, pytest.mark.split, pytest.mark.django_db]


@dataclass(frozen=True)
class Sender:
    """Send requests with the tokens of a world's people, and undo what they change."""

    world: World
    client: Client

    def hostile(self, method: str, address: str, body: bytes) -> tuple[int, float]:
        """Send a body as somebody who may do everything. Return the status and the processor seconds."""
        started = time.process_time()
        answered = self._send("superuser", method, address, body)
        return answered.status_code, time.process_time() - started

    def answer(self, case: Any, real: bool, caller: str) -> tuple[int, str]:
        """Send the case, with things that exist in its path if `real`. Return the status and the text."""
        if real:
            for name in FILLED & set(case.path_parameters or {}):
                case.path_parameters[name] = self.world.places[name]
        sent = case.as_transport_kwargs(base_url="http://testserver")
        body = _encoded(sent.get("json"))
        answered = self._send(caller, sent["method"], sent["url"], body, query_params=sent.get("params") or None)
        return answered.status_code, _text(answered)

    def _send(self, caller: str, method: str, address: str, body: bytes, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.world.tokens[caller]}"}
        self.client.cookies.clear()
        with transaction.atomic():
            answered = self.client.generic(
                method, address, body, content_type="application/json", headers=headers, **more
            )
            transaction.set_rollback(True)
        return answered


@pytest.fixture(scope="module")
def schema() -> Any:
    """Return what the API says of itself."""
    return schemathesis.openapi.from_dict(api.get_openapi_schema())


@pytest.fixture
def world() -> Iterator[World]:
    """Make a team's things, each with a mark that nobody else may read."""
    made = make_world()
    Run.objects.update(title=MARK, guidance=MARK)
    Kernel.objects.update(title=MARK)
    Finding.objects.update(title=MARK, text=MARK)
    Guidance.objects.update(text=MARK)
    LlmCall.objects.update(answer_text=MARK)
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield made
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


def operations() -> list[tuple[str, str]]:
    """Return (method, path) of everything that is described."""
    paths = api.get_openapi_schema()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


@pytest.fixture(scope="module")
def client() -> Client:
    """Return one client for all requests: each makes its own middleware, which costs more than a request."""
    return Client(raise_request_exception=False)


@pytest.mark.parametrize("share", range(SHARES))
def test_made_up_requests_break_nothing_and_see_nothing(
    share: int, schema: Any, world: World, client: Client
) -> None:
    faults: list[str] = []
    requests, shared = 0, operations()[share::SHARES]
    for method, path in shared:
        sent = probe(schema[path][method], Sender(world, client), f"{method} {path}", faults)
        assert sent, f"nothing was sent to {method} {path}"
        requests += sent
    print(f"{requests} requests to {len(shared)} operations")  # shown by `make fuzz-api`
    assert not faults, "\n".join(["", *faults])


def probe(operation: Any, sender: Sender, name: str, faults: list[str]) -> int:
    """Send `EXAMPLES` requests to one operation and add what went wrong; how many were sent."""
    seen: list[int] = []

    @given(case=operation.as_strategy(), real=st.booleans(), caller=st.sampled_from(CALLERS))
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=EXAMPLES <= 10,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def send(case: Any, real: bool, caller: str) -> None:
        status, text = sender.answer(case, real, caller)
        seen.append(status)
        if status >= 500:
            faults.append(f"{name} as {caller}: {status} {case.body!r:.200}")
        if caller == "outsider" and MARK in text:
            faults.append(f"{name} told the outsider of the team")

    send()
    return len(seen)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "deep": lambda: b'{"a":' * 900 + b"1" + b"}" * 900,
    "deeper than the stack": lambda: b"[" * 300_000,
    "deep settings": lambda: b'{"settings": ' + b'{"a":' * 900 + b"1" + b"}" * 901,
    "long": lambda: b'{"title": "' + b"a" * 3_000_000 + b'", "text": "' + b"\n" * 500_000 + b'"}',
    "too long": lambda: b'"' + b"a" * 5_000_000 + b'"',
    "many": lambda: b"[" + b"{}," * 400_000 + b"{}]",
    "large numbers": lambda: b'{"seed": ' + b"9" * 4_000 + b', "limit": 1e400}',
    "surrogate": lambda: b'{"title": "\\ud800", "text": "\\u0000"}',
    "no JSON": lambda: b"\xff\xfe{",
}  # fmt: skip


def test_nested_and_huge_bodies_are_refused_by_every_operation_that_reads_one(world: World, client: Client) -> None:
    faults: list[str] = []
    described = api.get_openapi_schema()["paths"]
    for method, path in operations():
        if "requestBody" not in described[path][method.lower()]:
            continue
        address = f"/api/v1/{path.removeprefix('/api/v1/')}"
        for name in re.findall(r"\{(\w+)\}", path):
            address = address.replace(f"{{{name}}}", str(world.places.get(name, 1)))
        for kind, made in HOSTILE.items():
            status, seconds = Sender(world, client).hostile(method, address, made())
            if not 400 <= status < 500:
                faults.append(f"{method} {path}: {kind}: {status}")
            if seconds > 3:
                faults.append(f"{method} {path}: {kind}: {seconds:.1f} s")
    assert not faults, "\n".join(["", *faults])


def _encoded(body: Any) -> bytes:
    return b"" if body is None else json.dumps(body, default=str).encode(errors="replace")


def _text(answered: Any) -> str:
    return "" if answered.streaming else str(answered.content.decode(errors="replace"))

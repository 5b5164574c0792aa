"""Send texts that take long to read as somebody who may do everything: no thread that answers holds up the others.

Pages are answered by threads of the process in whose main thread the event loop runs. A thread that stays inside a
regular expression or parser keeps Python's lock, and the event loop waits for it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from mcp.types import jsonrpc_message_adapter
from pydantic_core import from_json

from optimizer.mcp.asgi import MOST_BYTES, MOST_CONTAINERS, _fault
from tests.site.access_world import World

MOST_HELD_S = 0.1
ATTEMPTS = 4
UNITS = [
    "\n",
    " \n",
    "```suggestion\n",
    "<<<<<<< SEARCH\n",
    '"""a',
    "a=",
    "-",
    "[![",
    "@a ",
    "// @tune A 1 2\n",
    "1 ",
]
SIZES = (19_000, 240_000)

Send = Callable[[Client, World, str], Any]


def api(path: str, field: str, method: str = "POST", **more: Any) -> Send:
    """Return what sends a text as one field of a request to the API."""

    def send(client: Client, world: World, text: str) -> Any:
        places = world.places | {"live": world.running.pk}
        body = {name: value.format(**places) if isinstance(value, str) else value for name, value in more.items()}
        headers = {"Authorization": f"Bearer {world.tokens['superuser']}"}
        return client.generic(
            method, f"/api/v1/{path.format(**places)}", json.dumps(body | {field: text}),
            content_type="application/json", headers=headers,
        )  # fmt: skip

    return send


def page(path: str, field: str, **more: str) -> Send:
    """Return what sends a text as one field of a form."""

    def send(client: Client, world: World, text: str) -> Any:
        return client.post(f"/{path.format(**world.places)}", {**more, field: text})

    return send


def asked(path: str, field: str) -> Send:
    """Return what sends a text as a parameter of an address."""
    return lambda client, world, text: client.get(f"/{path.format(**world.places)}", {field: text[:60_000]})


HEAVY: dict[str, Send] = {
    "comment": api("runs/{run_id}/threads", "body"),
    "preview": page("runs/{run_id}/threads/preview/", "body"),
    "guidance": api("runs/{live}/guidance", "text"),
    "finding": api("findings", "text", team="{slug}", title="t"),
    "suggested kernel": api("runs/{live}/kernels", "source", base=1),
    "uploaded problem": api("problem-uploads", "source", name="relu"),
    "answer of the inbox": api("inbox/{call_id}/answer", "text"),
    "start form": page("runs/new/check/", "problem"),
    "search": asked("search/", "q"),
    "search of the API": asked("api/v1/search", "q"),
    "run's title": api("runs", "title", problem="softmax_rows", team="{slug}", budget={"evaluations": 1}),
    "labels": api("runs/{run_id}/labels", "notes", "PUT", tags=["a"]),
}


@contextmanager
def longest_hold() -> Iterator[Callable[[], float]]:
    """Yield a function that returns how much processor time this thread has spent at most while another one waited."""
    over, holds = threading.Event(), [0.0]
    clock = time.pthread_getcpuclockid(threading.get_ident())

    def wait() -> None:
        while not over.is_set():
            before = time.clock_gettime(clock)
            time.sleep(0.001)
            holds.append(time.clock_gettime(clock) - before)

    watch = threading.Thread(target=wait)
    watch.start()
    try:
        yield lambda: max(holds)
    finally:
        over.set()
        watch.join()


def held_s(work: Callable[[], object]) -> float:
    """Return the longest hold of a few attempts that held the shortest: a busy machine wakes threads late."""
    shortest = float("inf")
    for _ in range(ATTEMPTS):
        with longest_hold() as held:
            work()
        if (shortest := min(shortest, held())) <= MOST_HELD_S:
            break
    return shortest


@pytest.mark.timing
@pytest.mark.django_db
@pytest.mark.parametrize("kind", HEAVY)
def test_no_text_holds_the_event_loop(kind: str, world: World) -> None:
    client, superuser = Client(raise_request_exception=False), world.people["superuser"]
    assert superuser is not None
    client.force_login(superuser)
    statuses: set[int] = set()

    def send(text: str) -> None:
        with transaction.atomic():
            statuses.add(HEAVY[kind](client, world, text).status_code)
            transaction.set_rollback(True)

    send("warm")
    faults = [
        f"{unit!r} × {size}: {seconds:.2f} s"
        for unit in UNITS
        for size in SIZES
        if (seconds := held_s(lambda: send(unit * (size // len(unit)) + "\\"))) > MOST_HELD_S  # noqa: B023
    ]
    assert not faults
    assert statuses & {200, 201, 202, 302}, f"control: no text was accepted, only {statuses}"
    assert max(statuses) < 500


@pytest.mark.timing
def test_the_largest_messages_to_mcp_are_decoded_within_the_limit() -> None:
    """The SDK decodes messages in the event loop itself."""
    head = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a", "arguments": {"a": '
    many = head + b"[" + b"[]," * (MOST_CONTAINERS - 9) + b"1]}}}"
    long = head + b'"' + b"\\n" * (MOST_BYTES // 2 - 100) + b'"}}}'
    for message in (many, long):
        assert _fault(message) is None and len(message) <= MOST_BYTES
        assert min(_decoding_s(message) for _ in range(ATTEMPTS)) < MOST_HELD_S


def _decoding_s(message: bytes) -> float:
    """Return the processor seconds that the SDK takes to decode a message."""
    started = time.process_time()
    jsonrpc_message_adapter.validate_python(from_json(message), by_name=False)
    return time.process_time() - started


@pytest.mark.timing
def test_control_the_measurement_finds_a_parser_that_holds_all_threads() -> None:
    with longest_hold() as held:
        json.loads("[" + "1," * 4_000_000 + "1]")
    assert held() > MOST_HELD_S

"""Test events, the snapshot they keep fresh, and the socket that brings them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator
from django.contrib.auth.models import AnonymousUser
from django.db import transaction
from pydantic import ValidationError

from optimizer.events import sockets as publish
from optimizer.events.payloads import PAYLOADS, CallEnded, Payload, RunNoted, parse
from optimizer.events.record import record
from optimizer.events.sockets import broadcast
from optimizer.live import consumers, hub, rights, tail
from optimizer.live.routing import websocket_urlpatterns
from optimizer.loop import advance
from optimizer.models import Membership, Run, RunEvent, RunState, User
from optimizer.runs.locking import lock_run
from runners.job import JobResult, JobSpec, Status
from tests.factories import drive, failed_result, fake_evaluate, make_run, make_team, make_user
from tests.optimizer.snapshot import Snapshot, apply, snapshot_of


@pytest.mark.django_db
def test_old_state_plus_events_is_fresh_state() -> None:
    def mixed(spec: JobSpec, **more: Any) -> JobResult:
        bad = spec.parent is not None and int(spec.candidate.content_hash[0], 16) % 3 == 0
        return failed_result(spec, Status.CRASHED) if bad else fake_evaluate(spec, **more)

    run = make_run()
    snapshots: list[Snapshot] = [snapshot_of(run)]
    while not RunState(run.state).is_terminal:
        run = drive(run, mixed, rounds=1)
        snapshots.append(snapshot_of(Run.objects.get(pk=run.pk)))

    events = list(RunEvent.objects.filter(run=run).order_by("seq"))
    assert len(snapshots) > 4
    for old in snapshots:
        state = old
        for event in events:
            state = apply(state, event.seq, parse(event.type, event.payload))
        assert state == snapshots[-1]


@pytest.mark.django_db
def test_a_gap_in_the_events_is_noticed_and_a_repeated_event_changes_nothing() -> None:
    run = make_run()
    advance(run.pk)
    run.refresh_from_db()
    state = snapshot_of(run)

    assert apply(state, state.seq, RunNoted(text="again")) == state
    with pytest.raises(ValueError, match="gap"):
        apply(state, state.seq + 2, RunNoted(text="too far"))


def test_payloads_refuse_what_they_do_not_know() -> None:
    for payload in PAYLOADS.values():
        with pytest.raises(ValidationError, match="extra"):
            payload.model_validate({"no_such_field": 1})


def test_a_publisher_without_redis_complains_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Dead:
        async def group_send(self, group: str, message: dict[str, Any]) -> None:
            raise ConnectionError("no Redis")

    monkeypatch.setattr(publish, "get_channel_layer", Dead)
    publish.publish("run.1", {"type": "run.event"})

    deadline = asyncio.new_event_loop()
    for _ in range(100):
        if "announcement was lost" in caplog.text:
            break
        deadline.run_until_complete(asyncio.sleep(0.02))
    deadline.close()
    assert "no Redis" in caplog.text


@asynccontextmanager
async def looking(user: Any, run_id: int, after: str = "0") -> AsyncIterator[WebsocketCommunicator]:
    """Open a browser's socket of a run."""
    application = URLRouter(websocket_urlpatterns)  # type: ignore[arg-type]
    communicator = WebsocketCommunicator(application, f"/ws/runs/{run_id}/?after={after}")
    communicator.scope["user"] = user  # type: ignore[typeddict-unknown-key]
    await communicator.connect()
    try:
        yield communicator
    finally:
        await communicator.disconnect()


async def close_code(communicator: WebsocketCommunicator) -> int:
    message = await communicator.receive_output(5)
    assert message["type"] == "websocket.close", message
    return int(message["code"])


async def seqs(communicator: WebsocketCommunicator) -> list[int]:
    message = await communicator.receive_json_from(5)
    while message["kind"] == "heartbeat":
        message = await communicator.receive_json_from(5)
    assert message["kind"] == "events", message
    return [event["seq"] for event in message["events"]]


def happen(run: Run, payload: Payload) -> None:
    with transaction.atomic():
        record(lock_run(run.pk), payload)


def note(run: Run, text: str) -> None:
    happen(run, RunNoted(text=text))


Setup = Callable[[], Awaitable[tuple[Run, User]]]


@pytest.fixture
def setup() -> Setup:
    """Return a begun run and somebody who may look at it."""

    def make() -> tuple[Run, User]:
        team = make_team()
        run = make_run(team)
        advance(run.pk)
        run.refresh_from_db()
        return run, make_user(team)

    return sync_to_async(make)


@pytest.mark.django_db(transaction=True)
async def test_a_socket_brings_what_was_missed_and_then_what_happens_in_order(setup: Setup, servers: None) -> None:
    run, user = await setup()
    async with looking(user, run.pk, after="1") as page:
        assert await seqs(page) == list(range(2, run.last_seq + 1))
        for n in range(3):
            await sync_to_async(note)(run, f"note {n}")
        heard: list[int] = []
        while len(heard) < 3:
            heard += await seqs(page)
        assert heard == [run.last_seq + 1, run.last_seq + 2, run.last_seq + 3]


@pytest.mark.django_db(transaction=True)
async def test_a_socket_carries_only_what_pages_use_of_an_event(setup: Setup, servers: None) -> None:
    run, user = await setup()
    ended = CallEnded(call=7, key="k", role="writer", state="answered", spent_tokens=1, spent_usd=0.0)
    async with looking(user, run.pk, after=str(run.last_seq)) as page:
        await sync_to_async(happen)(run, RunNoted(text="a long text"))
        await sync_to_async(happen)(run, ended)
        events: list[dict[str, Any]] = []
        while len(events) < 2:
            events += (await page.receive_json_from(5)).get("events", [])
        assert events == [
            {"seq": run.last_seq + 1, "type": "run.note", "payload": {}},
            {"seq": run.last_seq + 2, "type": "call.ended", "payload": {"call": 7, "state": "answered"}},
        ]


@pytest.mark.django_db(transaction=True)
async def test_an_event_whose_announcement_was_lost_arrives_with_the_next_heartbeat(
    setup: Setup, servers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "HEARTBEAT_S", 0.3)
    run, user = await setup()
    async with looking(user, run.pk, after=str(run.last_seq)) as page:
        monkeypatch.setattr("optimizer.events.sockets.publish", lambda *_: None)
        await sync_to_async(note)(run, "nobody was told")
        message = await page.receive_json_from(5)
        while message["kind"] == "heartbeat":
            message = await page.receive_json_from(5)
        assert [event["seq"] for event in message["events"]] == [run.last_seq + 1]


@pytest.mark.django_db(transaction=True)
async def test_passing_news_reaches_who_is_looking_and_is_not_stored(setup: Setup, servers: None) -> None:
    run, user = await setup()
    async with looking(user, run.pk, after=str(run.last_seq)) as page:
        assert await page.receive_json_from(5) == {"kind": "heartbeat", "seq": run.last_seq}
        await sync_to_async(broadcast)(run.pk, "token", call=7, text="float4")
        assert await page.receive_json_from(5) == {"kind": "passing", "what": "token", "call": 7, "text": "float4"}
    assert await RunEvent.objects.filter(run=run).acount() == run.last_seq


@pytest.mark.django_db(transaction=True)
async def test_strangers_are_refused_and_are_not_told_whether_the_run_exists(setup: Setup, servers: None) -> None:
    run, _ = await setup()
    outsider = await sync_to_async(lambda: make_user(make_team()))()
    async with looking(outsider, run.pk) as page:
        assert await close_code(page) == rights.NO_SUCH_RUN
    async with looking(outsider, run.pk + 1000) as page:
        assert await close_code(page) == rights.NO_SUCH_RUN
    async with looking(AnonymousUser(), run.pk) as page:
        assert await close_code(page) == rights.NOT_SIGNED_IN


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("after", ["-1", "x", "1e3", "٣", "9" * 30])
async def test_a_malformed_number_is_refused(setup: Setup, servers: None, after: str) -> None:
    run, user = await setup()
    async with looking(user, run.pk, after) as page:
        assert await close_code(page) == rights.MALFORMED


@pytest.mark.django_db(transaction=True)
async def test_a_member_who_is_removed_loses_the_open_socket(
    setup: Setup, servers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(consumers, "RECHECK_S", 0.1)
    run, user = await setup()
    async with looking(user, run.pk, after=str(run.last_seq)) as page:
        await Membership.objects.filter(user=user).adelete()
        message = await page.receive_output(5)
        while message["type"] == "websocket.send":
            message = await page.receive_output(5)
        assert message["code"] == rights.NO_SUCH_RUN


# one hub a run


class Ear:
    """Keep what the socket was told."""

    def __init__(self) -> None:
        self.told: list[int] = []

    async def run_event(self, message: dict[str, Any]) -> None:
        self.told.append(message["seq"])

    async def run_passing(self, message: dict[str, Any]) -> None:
        raise AssertionError(message)


async def test_after_a_silence_news_is_told_at_once_and_what_follows_close_behind_goes_together(
    monkeypatch: pytest.MonkeyPatch, table: Table
) -> None:
    async def deaf(self: hub.Hub) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(hub.Hub, "_listen", deaf)
    ears, one = [Ear() for _ in range(50)], hub.Hub(1)
    one.listeners.update(ears)
    for seq in (296, 297, 298, 299):
        await one._hear({"type": "run.event", "seq": seq})
        while not ears[-1].told:
            await asyncio.sleep(0)
    while len(ears[-1].told) < 2:
        await asyncio.sleep(0.01)
    assert [ear.told for ear in ears] == [[296, 299]] * 50
    assert table.readings == 1
    one.remove(ears[0])
    one._task.cancel()


# the newest events, shared


class Table:
    """Represent the table of events: how often it was read, and `newest`."""

    def __init__(self, newest: int) -> None:
        self.newest, self.readings, self.fails = newest, 0, False

    async def read(self, run_id: int, after: int) -> list[dict[str, Any]]:
        self.readings += 1
        newest = self.newest
        await asyncio.sleep(0)
        if self.fails:
            raise OSError("no database")
        return [{"seq": seq} for seq in range(after + 1, min(newest, after + tail.PAGE) + 1)]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    shown = Table(300)
    monkeypatch.setattr(tail, "_read", shown.read)
    monkeypatch.setattr(tail, "_tails", OrderedDict())
    return shown


def numbers(events: list[dict[str, Any]]) -> list[int]:
    return [event["seq"] for event in events]


async def test_many_sockets_that_come_back_together_are_served_by_a_few_readings(table: Table) -> None:
    await tail.events_after(1, 290)
    table.newest, table.readings = 305, 0
    shown = await asyncio.gather(*(tail.events_after(1, 295) for _ in range(100)))
    assert all(numbers(events) == list(range(296, 306)) for events in shown)
    assert table.readings <= 2


@pytest.mark.parametrize("after", [0, 5, 250, 299, 300, 400])
async def test_whoever_was_away_gets_every_event_once_whatever_is_kept(table: Table, after: int) -> None:
    await tail.events_after(1, 95)
    table.newest, got = 1000, list[int]()
    while events := await tail.events_after(1, got[-1] if got else after):
        got += numbers(events)
        if len(events) < tail.PAGE:
            break
    assert got == list(range(after + 1, 1001))


async def test_a_reading_that_failed_serves_nobody(table: Table) -> None:
    await tail.events_after(1, 299)
    table.newest, table.fails = 301, True
    with pytest.raises(OSError, match="no database"):
        await tail.events_after(1, 300)
    table.fails = False
    assert numbers(await tail.events_after(1, 300)) == [301]

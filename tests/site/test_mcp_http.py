"""Test the site's MCP server over HTTP: a real Daphne, the official client, tokens, and a run from start to end."""

from __future__ import annotations

import asyncio
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from optimizer.actions.token import do_make_token
from optimizer.models import AuditAction, AuditEntry, Run, Team, TeamRole, TokenScope, User
from tests.factories import drive, make_team, make_user, store_problems_and_targets
from tests.mcp_client import answer, refusal
from tests.site.served import daphne, database_url

pytestmark = [pytest.mark.site, pytest.mark.django_db(transaction=True)]
READ, RUNS = TokenScope.READ.value, TokenScope.RUNS.value


@pytest.fixture
def team(transactional_db: None) -> Team:
    store_problems_and_targets()
    return make_team()


@pytest.fixture
def member(team: Team) -> User:
    return make_user(team, TeamRole.OPERATOR)


@pytest.fixture(scope="module")
def served(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run the site once for the tests that set no variables of their own."""
    with daphne(tmp_path_factory.mktemp("daphne"), {"DATABASE_URL": database_url()}) as address:
        yield address


@pytest.fixture
def address(request: pytest.FixtureRequest, team: Team, tmp_path: Path) -> Iterator[str]:
    """Return the address of the MCP server. A test may set variables of the site as the fixture's parameter."""
    if not (variables := getattr(request, "param", {})):
        yield f"{request.getfixturevalue('served')}/mcp"
        return
    with daphne(tmp_path, {"DATABASE_URL": database_url(), **variables}) as alone:
        yield f"{alone}/mcp"


def token(user: User, *scopes: str) -> str:
    return do_make_token(user, "agent", list(scopes) or [READ, RUNS])[1]


@asynccontextmanager
async def client_of(address: str, secret: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {secret}"}, timeout=60) as http,
        Client(streamable_http_client(address, http_client=http)) as client,
    ):
        yield client


def test_agent_goes_through_a_whole_run(address: str, member: User) -> None:
    secret = token(member)

    async def play() -> None:
        async with client_of(address, secret) as client:
            problems = await answer(client, "list_problems")
            assert "softmax_rows" in {one["slug"] for one in problems}
            task = await answer(client, "read_task", problem="softmax_rows")
            assert "softmax_rows(const float* x" in task["prototypes"]["cpp"]
            started = await answer(client, "start_run", problem="softmax_rows", evaluations=3, title="By an agent")
            run = await sync_to_async(Run.objects.get)(pk=started["id"])
            await sync_to_async(drive)(run, rounds=2)
            first = await answer(client, "submit_kernel", run=run.pk, source="// one\n", language="cpp",
                                 title="First", expected="It works.", wait_s=0)  # fmt: skip
            assert first["state"] == "queued"
            waiting = asyncio.ensure_future(
                answer(client, "read_verdict", run=run.pk, kernel=first["kernel"], wait_s=20)
            )
            await sync_to_async(drive)(run, rounds=1)
            assert (await waiting)["verdict"]["status"] == "correct"
            claim = {"title": "Second", "parents": [first["kernel"]], "reported_us": 40.0, "measure": False}
            claimed = await answer(client, "submit_kernel", run=run.pk, source="// two\n", language="cpp", **claim)
            assert claimed["state"] == "reported"
            listed = await answer(client, "list_kernels", run=run.pk)
            assert listed[-1]["parents"] == [first["kernel"]]
            assert "two" in await answer(client, "read_source", run=run.pk, kernel=claimed["kernel"])
            assert "+// two" in await answer(client, "diff", run=run.pk, kernel=claimed["kernel"])
            await answer(client, "finish_run", run=run.pk, reason="done")
            await sync_to_async(drive)(run, rounds=20)
            assert (await answer(client, "read_run", run=run.pk))["state"] == "finished"
            assert (await answer(client, "read_best", run=run.pk))["source"]
        # The thread of `sync_to_async` has a connection of its own, which would keep the database busy.
        await sync_to_async(connections.close_all)()

    asyncio.run(play())


def test_token_decides_what_an_agent_may(address: str, member: User, team: Team) -> None:
    reader, outsider = token(member, READ), token(make_user(make_team(), TeamRole.OWNER))
    owner = token(member)

    async def play() -> None:
        async with client_of(address, owner) as client:
            run = (await answer(client, "start_run", problem="softmax_rows", evaluations=3))["id"]
            assert "not started" in await refusal(
                client, "submit_kernel", run=run, source="x", language="cpp", title="t", wait_s=0
            )
            assert "There is no such thing" in await refusal(client, "read_run", run=10**6)
            assert "There is no such" in await refusal(client, "read_task", problem="../../admin")
        async with client_of(address, reader) as client:
            assert (await answer(client, "read_run", run=run))["state"] == "pending"
            assert "no scope" in await refusal(client, "finish_run", run=run)
        async with client_of(address, outsider) as client:
            assert "There is no such" in await refusal(client, "read_run", run=run)
            assert await answer(client, "list_runs") == []

    asyncio.run(play())


def test_requests_without_a_usable_token_or_too_large_are_turned_away(address: str, member: User) -> None:
    row, revoked = do_make_token(member, "agent", [READ])
    row.revoke()
    # A token for the inbox alone may not even read.
    secrets = ["", "ks_wrong", revoked, token(member, TokenScope.INBOX.value)]
    assert [status(address, f"Bearer {secret}") for secret in secrets] == [401] * len(secrets)
    assert (status(address, None), status(address, "Basic eDp5")) == (401, 401)
    assert status(address, f"Bearer {token(member)}", b"x" * (5 << 20)) == 413


@pytest.mark.parametrize("address", [{"KERNELSCI_API_RATE": "12"}], indirect=True)
def test_agent_that_asks_too_often_is_told_when_to_return_and_shares_its_rate_with_the_api(
    address: str, member: User
) -> None:
    mine, other = f"Bearer {token(member)}", f"Bearer {token(member)}"
    api = address.removesuffix("/mcp") + "/api/v1/problems"
    answers = [status(address, mine) for _ in range(6)] + [status(api, mine, get=True) for _ in range(6)]
    # Twelve requests may fall on both sides of a minute, forty-eight cannot all.
    answers += [status(api, mine, get=True) for _ in range(20)] + [status(address, mine) for _ in range(16)]
    assert set(answers) == {200, 429}
    assert answers[0] == 200 and answers[-1] == 429
    assert retry_after(address, mine) in range(1, 61)
    assert status(address, other) == 200

    async def play() -> None:
        async with client_of(address, other.removeprefix("Bearer ")) as client:
            refused = [await client.call_tool("list_problems", {}) for _ in range(6)][-1]
            assert refused.is_error and "too many requests" in str(refused.content)

    with suppress(BaseExceptionGroup):  # the client's own requests are refused too in the end
        asyncio.run(play())


@pytest.mark.parametrize(
    "address", [{"KERNELSCI_HTTPS": "1", "ALLOWED_HOSTS": "127.0.0.1,kernels.example.org"}], indirect=True
)
def test_other_hosts_and_tokens_in_the_clear_are_refused_as_by_the_api(address: str, member: User) -> None:
    bearer = f"Bearer {token(member)}"
    api = address.removesuffix("/mcp") + "/api/v1/problems"
    assert status(address, bearer, host="evil.example.com") == status(api, bearer, host="evil.example.com") == 400
    assert status(address, bearer) == status(api, bearer) == 301


def test_large_body_is_refused_though_it_is_sent_in_pieces_without_a_length(address: str, member: User) -> None:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    headers = {"Authorization": f"Bearer {token(member)}", "Content-Type": "application/json",
               "Accept": "application/json, text/event-stream"}  # fmt: skip
    pieces = (b" " * (1 << 20) for _ in range(5))
    connection.request("POST", "/mcp", pieces, headers, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_what_an_agent_does_is_in_the_audit_log_as_if_by_the_api(address: str, member: User) -> None:
    secret = token(member)

    async def play() -> None:
        async with client_of(address, secret) as client:
            run = (await answer(client, "start_run", problem="softmax_rows", evaluations=3))["id"]
            await answer(client, "finish_run", run=run, reason="done")

    asyncio.run(play())
    entries = AuditEntry.objects.filter(actor_id=member.pk).values_list("action", flat=True)
    assert {AuditAction.RUN_STARTED, AuditAction.RUN_FINISHED} <= set(entries)


def retry_after(address: str, header: str) -> int:
    """Return the seconds after which a refused client may return."""
    request = urllib.request.Request(address, b"{}", {"Authorization": header})  # noqa: S310 - our own http
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)  # noqa: S310 - our own http
    return int(refused.value.headers["Retry-After"])


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Leave redirects to the test."""

    def redirect_request(self, *_: Any) -> None:
        """Return None: the redirect is the answer."""


def status(
    address: str, header: str | None, body: bytes | None = None, *, host: str = "", get: bool = False
) -> int:
    """Return the status with which a plain request is answered."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    headers |= {"Authorization": header} if header else {}
    headers |= {"Host": host} if host else {}
    data = None if get else body or json.dumps(call).encode()
    request = urllib.request.Request(address, data, headers)  # noqa: S310 - our own http
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=30) as found:
            return int(found.status)
    except urllib.error.HTTPError as error:
        return error.code

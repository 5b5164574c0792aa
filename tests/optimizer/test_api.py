"""Test the API: who may do what with which token, pages of lists, starts that happen once, refusals as JSON."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from optimizer.actions.provider import ProviderFields, do_save_provider
from optimizer.actions.token import do_make_token
from optimizer.models import (
    ApiToken,
    Guidance,
    IdempotencyKey,
    Kernel,
    Run,
    RunEvent,
    Runner,
    RunState,
    Team,
    TeamRole,
    TokenScope,
    User,
)
from tests.factories import make_run, make_team, make_user
from tests.optimizer.clients import Call, caller_of

pytestmark = pytest.mark.django_db
START = {"problem": "softmax_rows", "budget": {"evaluations": 4}}


def reads_of(run: Run) -> list[str]:
    base = f"/runs/{run.pk}"
    return [base, f"{base}/events", f"{base}/kernels", f"{base}/hypotheses", f"{base}/kernels/0",
            f"{base}/kernels/0/source", f"{base}/kernels/0/evaluations", f"{base}/report.html"]  # fmt: skip


# who may


def test_a_member_reads_everything_about_a_run(api: Call, finished: Run) -> None:
    run = finished
    for path in reads_of(run):
        assert api("GET", path).status_code == 200, path


def test_an_outsider_is_told_that_nothing_is_there(finished: Run) -> None:
    run = finished
    call = caller_of(make_user(make_team()))
    for path in reads_of(run):
        assert call("GET", path).status_code == 404, path
    for verb in ("pause", "resume", "stop", "clone"):
        assert call("POST", f"/runs/{run.pk}/{verb}").status_code == 404, verb
    assert call("GET", "/runs").json() == {"items": [], "next": None}


def test_a_viewer_reads_and_does_not_steer(team: Team, run: Run) -> None:
    call = caller_of(make_user(team, TeamRole.VIEWER))
    assert call("GET", f"/runs/{run.pk}").status_code == 200
    assert call("POST", f"/runs/{run.pk}/stop").status_code == 404
    assert call("PUT", f"/runs/{run.pk}/budget", {"evaluations": 99}).status_code == 404
    assert call("POST", "/runs", START | {"team": team.slug}).status_code == 422
    run.refresh_from_db()
    assert run.state == RunState.PENDING


def test_nobody_calls_without_a_token(client: Client, run: Run) -> None:
    for path in (f"/api/v1/runs/{run.pk}", "/api/v1/search?q=x", "/api/v1/webhooks", "/api/v1/targets"):
        assert client.get(path).status_code == 401, path


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("POST", "/runs", TokenScope.RUNS),
        ("POST", "/runs/1/stop", TokenScope.RUNS),
        ("POST", "/findings", TokenScope.REVIEW),
        ("POST", "/runners/1/drain", TokenScope.RUNNERS),
        ("GET", "/webhooks", TokenScope.WEBHOOKS),
        ("GET", "/runs", TokenScope.READ),
    ],
)
def test_a_token_does_only_what_it_names(member: User, method: str, path: str, scope: TokenScope) -> None:
    others = [other for other in TokenScope if other != scope]
    assert caller_of(member, *others)(method, path, {} if method == "POST" else None).status_code == 403


def test_a_revoked_token_opens_nothing(member: User, api: Call, run: Run) -> None:
    ApiToken.objects.get().revoke()
    assert api("GET", f"/runs/{run.pk}").status_code == 401


def test_a_session_needs_the_csrf_token_to_change_anything(member: User, run: Run) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(member)
    assert client.get(f"/api/v1/runs/{run.pk}").status_code == 200
    assert client.post(f"/api/v1/runs/{run.pk}/stop").status_code == 403


# starting


def test_a_run_is_started_cloned_paused_resumed_and_stopped(api: Call, run: Run) -> None:
    answer = api("POST", "/runs", START | {"title": "By the API", "seed": 7})
    assert answer.status_code == 201, answer.json()
    started = answer.json()
    assert (started["title"], started["seed"], started["budget"]["evaluations"]) == ("By the API", 7, 4)
    clone = api("POST", f"/runs/{started['id']}/clone")
    assert clone.status_code == 201 and clone.json()["cloned_from"] == started["id"]
    for verb, state in (("pause", "paused"), ("resume", "running"), ("stop", "stopping")):
        assert api("POST", f"/runs/{started['id']}/{verb}").json()["state"] == state
    assert api("POST", f"/runs/{started['id']}/resume").status_code == 409


def test_the_same_key_starts_one_run_and_another_request_under_it_is_refused(api: Call, run: Run) -> None:
    first = api("POST", "/runs", START, **{"Idempotency-Key": "nightly"})
    again = api("POST", "/runs", START, **{"Idempotency-Key": "nightly"})
    other = api("POST", "/runs", START | {"seed": 1}, **{"Idempotency-Key": "nightly"})
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert first.json()["id"] == again.json()["id"]
    assert Run.objects.count() == 2


def test_a_refused_start_leaves_its_key_unused(api: Call, run: Run) -> None:
    bad = api("POST", "/runs", START | {"strategy": "none"}, **{"Idempotency-Key": "k"})
    assert bad.status_code == 422 and "strategy" in bad.json()["fields"]
    assert not IdempotencyKey.objects.exists()
    assert api("POST", "/runs", START, **{"Idempotency-Key": "k"}).status_code == 201


def test_a_token_that_asks_too_often_is_told_when_to_return(api: Call, member: User, settings: Any) -> None:
    settings.API_RATE = 3
    answers = [api("GET", "/problems") for _ in range(8)]  # more than two minutes' worth, wherever the minute ends
    assert answers[0].status_code == 200
    refused = answers[-1]
    assert (refused.status_code, "at most 3 a minute" in refused.json()["detail"]) == (429, True)
    assert 1 <= int(refused["Retry-After"]) <= 60
    assert caller_of(member)("GET", "/problems").status_code == 200


def test_keys_of_two_people_do_not_meet(team: Team, api: Call, run: Run) -> None:
    other = caller_of(make_user(team))
    ids = {call("POST", "/runs", START, **{"Idempotency-Key": "k"}).json()["id"] for call in (api, other)}
    assert len(ids) == 2


@pytest.mark.parametrize(
    "change",
    [{"problem": "none"}, {"target": "none"}, {"team": "none"}, {"surprise": 1}, {"seed": -1}, {"title": "x" * 201},
     {"budget": {"evaluations": 0}}, {"problem_version": 99}, {"settings": {"surprise": 1}}, {"seed": 2**63}],
)  # fmt: skip
def test_a_faulty_start_is_refused_in_words(api: Call, run: Run, change: dict[str, Any]) -> None:
    answer = api("POST", "/runs", START | change)
    assert answer.status_code == 422, answer.content
    assert answer.json()["detail"]
    assert Run.objects.count() == 1


@pytest.mark.parametrize(
    ("change", "told"), [({"title": "a\x00b"}, "a NUL character"), ({"seed": 10**30}, "more than 19 digits")]
)
def test_a_start_that_is_no_usable_json_is_refused_before_its_fields_are_read(
    api: Call, run: Run, change: dict[str, Any], told: str
) -> None:
    answer = api("POST", "/runs", START | change)
    assert (answer.status_code, told in answer.json()["detail"]) == (400, True), answer.content
    assert Run.objects.count() == 1


def test_somebody_in_two_teams_names_one(member: User, api: Call, run: Run) -> None:
    other = make_team()
    other.memberships.create(user=member, role=TeamRole.OPERATOR)
    assert api("POST", "/runs", START).json()["fields"] == {"team": ["Name the team."]}
    assert api("POST", "/runs", START | {"team": other.slug}).json()["team"] == other.slug


def test_a_budget_is_raised_and_an_instruction_reaches_the_run(api: Call, run: Run) -> None:
    told = api("PUT", f"/runs/{run.pk}/budget", {"evaluations": 50, "usd": "1.5"}).json()["budget"]
    assert (told["evaluations"], told["usd"], told["minutes"]) == (50, 1.5, None)
    assert api("POST", f"/runs/{run.pk}/guidance", {"text": "Use wider loads."}).status_code == 201
    assert Guidance.objects.get().text == "Use wider loads."


# reading


def test_pages_neither_repeat_nor_skip(api: Call, team: Team, member: User) -> None:
    made = [make_run(team, member).pk for _ in range(5)]
    got, cursor = [], None
    while True:
        page = api("GET", "/runs?limit=2" + (f"&cursor={cursor}" if cursor else "")).json()
        got += [item["id"] for item in page["items"]]
        if (cursor := page["next"]) is None:
            break
        make_run(team, member)  # a newer one does not disturb the pages that follow
    assert got == sorted(made, reverse=True)


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=x", "cursor=-1", f"cursor={2**70}"])
def test_a_window_out_of_bounds_is_refused(api: Call, query: str) -> None:
    assert api("GET", f"/runs?{query}").status_code == 422


def test_events_after_a_number_are_all_there_in_order(api: Call, finished: Run) -> None:
    run = finished
    seqs: list[int] = []
    while items := api("GET", f"/runs/{run.pk}/events?limit=3&after={seqs[-1] if seqs else 0}").json()["items"]:
        seqs += [item["seq"] for item in items]
    assert seqs == list(range(1, RunEvent.objects.filter(run=run).count() + 1))


def test_a_kernel_comes_with_its_source_and_every_sample(api: Call, finished: Run) -> None:
    run = finished
    kernel = Kernel.objects.get(run=run, number=1)
    answer = api("GET", f"/runs/{run.pk}/kernels/1/source")
    assert answer.content.decode() == kernel.source
    assert answer.headers["Content-Disposition"] == "attachment"
    evaluation = api("GET", f"/runs/{run.pk}/kernels/1/evaluations").json()[0]
    assert evaluation["status"] == "correct"
    assert {row["subject"] for row in evaluation["measurements"]} == {"candidate", "baseline"}
    assert all(row["samples_us"] for row in evaluation["measurements"])


def test_the_catalogue_names_problems_targets_and_strategies(api: Call, run: Run) -> None:
    assert "softmax_rows" in {row["slug"] for row in api("GET", "/problems").json()}
    assert "cpu" in {row["key"] for row in api("GET", "/targets").json()}
    assert {"tune", "stark", "scientist"} <= {row["name"] for row in api("GET", "/strategies").json()}


def test_providers_are_told_without_their_keys(team: Team, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = make_user(team, TeamRole.OWNER)
    fields = ProviderFields("models", "https://203.0.113.1/v1", key="sk-canary-1234567890")
    monkeypatch.setattr("optimizer.actions.provider.check_host", lambda *_args, **_kwargs: None)
    do_save_provider(owner, team, fields)
    answer = caller_of(owner)("GET", "/providers")
    assert answer.json()[0]["has_key"] is True
    assert "canary" not in answer.content.decode()


def test_only_administrators_drain_runners(run: Run, api: Call) -> None:
    from django.utils import timezone

    runner = Runner.objects.create(name="r", target=run.target, heartbeat_at=timezone.now())
    assert api("POST", f"/runners/{runner.pk}/drain", {"note": "x"}).status_code == 404
    root = caller_of(User.objects.create_superuser("root"))
    told = root("POST", f"/runners/{runner.pk}/drain", {"note": "new fan"}).json()
    assert told["draining"] is True and "new fan" in told["drain_note"]
    assert root("POST", f"/runners/{runner.pk}/undrain").json()["draining"] is False


def test_a_finding_is_written_and_its_stale_edit_refused(api: Call, team: Team) -> None:
    made = api("POST", "/findings", {"team": team.slug, "title": "Caches", "text": "1 MiB"}).json()
    edit = {"title": "Caches", "text": "2 MiB"}
    assert api("PUT", f"/findings/{made['id']}", edit).status_code == 200
    assert api("PUT", f"/findings/{made['id']}", edit).status_code == 409
    assert [row["text"] for row in api("GET", "/findings").json()["items"]] == ["2 MiB"]
    assert len(api("GET", "/findings?current=false").json()["items"]) == 2


def test_nobody_writes_into_the_knowledge_of_another_team(api: Call) -> None:
    body = {"team": make_team().slug, "title": "Caches", "text": "1 MiB"}
    assert api("POST", "/findings", body).status_code in (404, 422)


def test_search_and_leaderboard_answer(api: Call, finished: Run) -> None:
    run = finished
    assert {hit["kind"] for hit in api("GET", "/search?q=softmax").json()} >= {"kernel"}
    assert api("GET", "/search?q=softmax&kind=nothing").status_code == 404
    board = api("GET", "/leaderboard?problem=softmax_rows&target=cpu").json()
    assert [leader["run"] for leader in board["leaders"]] == [run.pk]


# its description, and the page of tokens


def test_the_description_names_every_operation_once_and_is_readable_without_a_token(client: Client) -> None:
    schema = client.get("/api/v1/openapi.json").json()
    ids = [told["operationId"] for methods in schema["paths"].values() for told in methods.values()]
    assert len(ids) == len(set(ids)) > 30


def test_the_page_of_the_api_lists_its_operations(client: Client, member: User) -> None:
    client.force_login(member)
    text = client.get(reverse("api_page")).content.decode()
    assert "POST /api/v1/runs/{run_id}/clone" in text and "Idempotency-Key" in text


def test_a_token_is_shown_once_and_works_until_it_is_revoked(client: Client, member: User, run: Run) -> None:
    client.force_login(member)
    made = client.post(reverse("tokens"), {"name": "script", "scopes": ["read"], "days": "30"}).content.decode()
    secret = made.split('id="secret">')[1].split("<")[0]
    bearer = {"authorization": f"Bearer {secret}"}
    assert secret not in client.get(reverse("tokens")).content.decode()
    assert Client().get(f"/api/v1/runs/{run.pk}", headers=bearer).status_code == 200
    client.post(reverse("token_revoke", args=[ApiToken.objects.get().pk]))
    assert Client().get(f"/api/v1/runs/{run.pk}", headers=bearer).status_code == 401


def test_nobody_revokes_the_token_of_another(client: Client, member: User) -> None:
    token, _ = do_make_token(member, "mine", ["read"])
    client.force_login(make_user(make_team()))
    assert client.post(reverse("token_revoke", args=[token.pk])).status_code == 404
    token.refresh_from_db()
    assert token.revoked_at is None


def test_a_body_that_is_too_large_is_refused_in_words(api: Call, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 2 << 20
    answer = api("POST", "/runs", {**START, "title": "x" * (3 << 20)})
    assert answer.status_code == 413
    assert answer.json() == {"detail": "A request holds at most 2 MiB."}

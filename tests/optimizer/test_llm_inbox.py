"""Test prompts that people and outside agents answer: pages, API, command line, and who may."""

from __future__ import annotations

import datetime as dt
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from optimizer.actions.run import do_stop_run
from optimizer.calls.worker import answer
from optimizer.models import ApiToken, CallState, LlmCall, Run, TeamRole, TokenScope, User
from optimizer.queries.budgets import Budget
from optimizer.upkeep.sweep import sweep
from tests.driven_runs import make_driven_run
from tests.factories import drive, make_user
from tests.optimizer.clients import flowing, signed_in

pytestmark = pytest.mark.django_db
GOOD = "Title: By hand\n```cpp\n// by hand\nint x;\n```"
BAD = "I would use tiles."


@pytest.fixture
def prompt() -> LlmCall:
    return waiting_prompt()


def waiting_prompt(**default: Any) -> LlmCall:
    run = make_driven_run(
        12,
        strategy="sampling",
        providers={"default": {"provider": "inbox"} | default},
        budget=Budget(evaluations=4),
    )
    call = LlmCall.objects.get(run=run)
    answer(call.pk)
    call.refresh_from_db()
    assert call.state == CallState.WAITING
    return call


def operator(call: LlmCall, role: TeamRole = TeamRole.OPERATOR) -> User:
    return make_user(call.run.team, role)


def api(user: User, scopes: list[TokenScope] | None = None) -> Client:
    _, secret = ApiToken.make(user, "test", scopes if scopes is not None else [TokenScope.INBOX])
    return Client(headers={"authorization": f"Bearer {secret}"})


def post(client: Client, path: str, body: Any = None) -> Any:
    return client.post(f"/api/v1/inbox{path}", json.dumps(body or {}), content_type="application/json")


def test_an_answer_through_the_page_lets_the_run_go_on(prompt: LlmCall) -> None:
    client = signed_in(operator(prompt))
    page = client.get(f"/inbox/{prompt.pk}/")
    assert "By hand" not in page.content.decode() and "softmax" in page.content.decode()
    assert client.post(f"/inbox/{prompt.pk}/", {"answer": GOOD}).status_code == 302
    prompt.refresh_from_db()
    assert prompt.state == CallState.ANSWERED and prompt.answered_by is not None and prompt.cost_usd is None
    drive(prompt.run, rounds=4)
    assert prompt.run.kernels.filter(title="By hand").exists()


def test_an_unusable_answer_comes_back_with_its_fault_and_its_text(prompt: LlmCall) -> None:
    reply = signed_in(operator(prompt)).post(f"/inbox/{prompt.pk}/", {"answer": BAD})
    assert reply.status_code == 422
    assert "no code block" in reply.content.decode() and BAD in reply.content.decode()
    prompt.refresh_from_db()
    assert prompt.state == CallState.WAITING and prompt.transport["refused"][0]["fault"] == "no_code"


def test_a_rejection_stands_above_everything_and_takes_the_focus(prompt: LlmCall) -> None:
    page = signed_in(operator(prompt)).post(f"/inbox/{prompt.pk}/", {"answer": BAD}).content.decode()
    assert page.index('id="fault" tabindex="-1" autofocus') < page.index('id="answer-title"')
    assert page.index('id="answer-title"') < page.index('id="prompt-title"'), "the form's place hangs on no prompt"
    assert 'aria-describedby="answer-help fault"' in page


def test_a_prompt_of_a_stopped_run_says_so_and_an_open_page_learns_of_it(prompt: LlmCall) -> None:
    person = signed_in(operator(prompt))
    state = f"/inbox/{prompt.pk}/state/?was=waiting"
    assert "Reload" not in person.get(state).content.decode()
    do_stop_run(operator(prompt), prompt.run)
    drive(prompt.run)
    told = person.get(state).content.decode()
    assert "Reload" in told and "hx-get" not in told
    page = person.get(f"/inbox/{prompt.pk}/").content.decode()
    assert "the run ended before this prompt was answered" in flowing(page)


def test_what_was_refused_is_kept_in_short_and_shown_to_who_answers_and_on_the_calls_page(prompt: LlmCall) -> None:
    user = operator(prompt)
    hostile = f"{BAD} <script>x</script>\u202egnirts\x1b[31m" + "long " * 100_000
    assert post(api(user), f"/{prompt.pk}/answer", {"text": hostile, "model": "outside-1"}).status_code == 422
    prompt.refresh_from_db()
    assert len(prompt.transport["refused"][0]["text"]) < 5_000
    for path in (f"/inbox/{prompt.pk}/", f"/runs/{prompt.run_id}/calls/{prompt.pk}/"):
        said = signed_in(user).get(path).content.decode()
        assert "no_code" in said and BAD in said and "outside-1" in said and "characters left out" in said
        assert "<script>x" not in said and "\u202e" not in said and "\x1b" not in said


def test_the_page_says_what_the_token_budget_kept_out(prompt: LlmCall) -> None:
    LlmCall.objects.filter(pk=prompt.pk).update(
        context_report={
            "budget_tokens": 900,
            "taken": [{"ref": "f1", "scope": "run", "title": "Tiles of 64 win", "tokens": 12}],
            "left_out": [{"ref": "f2", "scope": "target", "title": "<b>Long</b> notes", "tokens": 4000}],
        }
    )
    shown = " ".join(signed_in(operator(prompt)).get(f"/inbox/{prompt.pk}/").content.decode().split())
    assert "1 taken, 1 left out by the budget of 900 tokens" in shown
    assert (
        shown.index("Tiles of 64 win") < shown.index("&lt;b&gt;Long&lt;/b&gt; notes") < shown.index("left out</b>")
    )


def test_the_api_lists_reads_claims_and_takes_answers(prompt: LlmCall) -> None:
    client = api(operator(prompt))
    (line,) = client.get("/api/v1/inbox").json()
    assert (line["id"], line["role"], line["claimed"]) == (prompt.pk, "solo", "nobody")
    whole = client.get(f"/api/v1/inbox/{prompt.pk}").json()
    assert whole["messages"] == prompt.messages and whole["expected_json"] is None and "softmax" in whole["text"]
    assert post(client, f"/{prompt.pk}/claim").json()["claimed"] == "mine"
    refused = post(client, f"/{prompt.pk}/answer", {"text": BAD})
    assert refused.status_code == 422 and refused.json()["fault"] == "no_code" and refused.json()["errors"]
    done = post(client, f"/{prompt.pk}/answer", {"text": GOOD, "model": "outside-1"})
    assert done.status_code == 200 and done.json()["answer"]["title"] == "By hand"
    assert client.get("/api/v1/inbox").json() == []
    assert post(client, f"/{prompt.pk}/answer", {"text": GOOD}).status_code == 409
    prompt.refresh_from_db()
    assert prompt.transport["served_by"] == "outside-1"


def test_a_claim_keeps_others_out_until_it_runs_out(prompt: LlmCall) -> None:
    first, second = api(operator(prompt)), api(operator(prompt))
    assert post(first, f"/{prompt.pk}/claim").status_code == 200
    assert post(second, f"/{prompt.pk}/claim").status_code == 409
    assert post(second, f"/{prompt.pk}/answer", {"text": GOOD}).status_code == 409
    assert second.get("/api/v1/inbox").json()[0]["claimed"] == "theirs"
    LlmCall.objects.filter(pk=prompt.pk).update(lease_until=timezone.now() - dt.timedelta(seconds=1))
    assert post(second, f"/{prompt.pk}/claim").status_code == 200
    assert post(first, f"/{prompt.pk}/answer", {"text": GOOD}).status_code == 409


def test_a_released_prompt_can_be_taken_by_anybody(prompt: LlmCall) -> None:
    first, second = api(operator(prompt)), api(operator(prompt))
    post(first, f"/{prompt.pk}/claim")
    assert post(second, f"/{prompt.pk}/release").status_code == 204
    assert post(second, f"/{prompt.pk}/claim").status_code == 409, "only the holder releases"
    post(first, f"/{prompt.pk}/release")
    assert post(second, f"/{prompt.pk}/claim").status_code == 200


@pytest.mark.parametrize("role", [None, TeamRole.VIEWER, TeamRole.REVIEWER])
def test_whoever_is_no_operator_does_not_see_the_prompt(prompt: LlmCall, role: TeamRole | None) -> None:
    user = make_user() if role is None else operator(prompt, role)
    assert api(user).get("/api/v1/inbox").json() == []
    assert "No" in signed_in(user).get("/inbox/").content.decode()
    for reply in (
        api(user).get(f"/api/v1/inbox/{prompt.pk}"),
        post(api(user), f"/{prompt.pk}/claim"),
        post(api(user), f"/{prompt.pk}/answer", {"text": GOOD}),
        signed_in(user).get(f"/inbox/{prompt.pk}/"),
        signed_in(user).post(f"/inbox/{prompt.pk}/", {"answer": GOOD}),
        signed_in(user).post(f"/inbox/{prompt.pk}/claim/"),
    ):
        assert reply.status_code == 404
    prompt.refresh_from_db()
    assert prompt.state == CallState.WAITING


def test_a_private_runs_prompt_is_not_for_other_operators(prompt: LlmCall) -> None:
    Run.objects.filter(pk=prompt.run_id).update(is_private=True)
    assert api(operator(prompt)).get(f"/api/v1/inbox/{prompt.pk}").status_code == 404
    assert api(operator(prompt, TeamRole.OWNER)).get(f"/api/v1/inbox/{prompt.pk}").status_code == 200


def test_a_stranger_gets_nothing_from_the_api(prompt: LlmCall) -> None:
    user = operator(prompt)
    row, secret = ApiToken.make(user, "old", [TokenScope.INBOX])
    client = Client(headers={"authorization": f"Bearer {secret}"})
    assert client.get("/api/v1/inbox").status_code == 200
    row.revoke()
    assert client.get("/api/v1/inbox").status_code == 401
    assert Client().get("/api/v1/inbox").status_code == 401
    assert Client(headers={"authorization": "Bearer ks_wrong"}).get("/api/v1/inbox").status_code == 401
    assert api(user, [TokenScope.READ]).get("/api/v1/inbox").status_code == 403
    past = timezone.now() - dt.timedelta(days=1)
    _, expired = ApiToken.make(user, "expired", [TokenScope.INBOX], past)
    assert Client(headers={"authorization": f"Bearer {expired}"}).get("/api/v1/inbox").status_code == 401
    assert not ApiToken.objects.filter(hash=secret).exists(), "only the hash is stored"


def test_a_session_needs_the_csrf_token(prompt: LlmCall) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(operator(prompt))
    assert client.get("/api/v1/inbox").status_code == 200
    assert post(client, f"/{prompt.pk}/claim").status_code == 403


def test_an_answer_of_many_megabytes_is_refused(prompt: LlmCall) -> None:
    reply = post(api(operator(prompt)), f"/{prompt.pk}/answer", {"text": "x" * 2_100_000})
    assert reply.status_code == 422
    prompt.refresh_from_db()
    assert prompt.state == CallState.WAITING


def test_nul_characters_are_refused_and_script_is_taken_as_text(prompt: LlmCall) -> None:
    text = "```cpp\n// <script>alert(1)</script>\n```"
    client = signed_in(operator(prompt))
    refused = post(api(operator(prompt)), f"/{prompt.pk}/answer", {"text": f"\x00{text}"})
    assert (refused.status_code, "NUL character" in refused.json()["detail"]) == (400, True)
    prompt.refresh_from_db()
    assert prompt.state == CallState.WAITING
    assert post(api(operator(prompt)), f"/{prompt.pk}/answer", {"text": text}).status_code == 200
    assert "<script>alert" not in client.get(f"/inbox/{prompt.pk}/").content.decode()


def test_a_prompt_that_nobody_answers_expires_when_its_run_says_so() -> None:
    call = waiting_prompt(expires_minutes=10)
    sweep()
    call.refresh_from_db()
    assert call.state == CallState.WAITING
    LlmCall.objects.filter(pk=call.pk).update(created_at=timezone.now() - dt.timedelta(minutes=11))
    sweep()
    call.refresh_from_db()
    assert call.state == CallState.FAILED and call.error == "Expired without an answer."


def test_the_command_line_lists_shows_and_answers(prompt: LlmCall, tmp_path: Path) -> None:
    user = operator(prompt)
    assert f"{prompt.pk}\t" in ran("inbox", "--user", user.username, "list")
    assert "softmax" in ran("inbox", "--user", user.username, "show", str(prompt.pk))
    file = tmp_path / "answer.md"
    file.write_text(BAD)
    with pytest.raises(CommandError, match="no_code"):
        ran("inbox", "--user", user.username, "answer", str(prompt.pk), "--file", str(file))
    file.write_text(GOOD)
    assert "answered" in ran("inbox", "--user", user.username, "answer", str(prompt.pk), "--file", str(file))
    with pytest.raises(CommandError, match="no longer waiting"):
        ran("inbox", "--user", user.username, "answer", str(prompt.pk), "--file", str(file))


def ran(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()

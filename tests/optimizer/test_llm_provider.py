"""Test the OpenAI-compatible provider against a real server that misbehaves in every way we know."""

from __future__ import annotations

import datetime as dt
import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from optimizer.llm.endpoint import Endpoint
from optimizer.llm.openai_compatible import OpenAiCompatible
from optimizer.llm.port import (
    MAX_ANSWER_CHARACTERS,
    CallCancelledError,
    Completion,
    CompletionRequest,
    InterruptedStreamError,
    ProviderRefusedError,
    ProviderUnavailableError,
)
from optimizer.llm.retries import RetryPolicy, retry_after_s
from tests.llm_server import KEY, LlmServer, Reply, error

QUICK = RetryPolicy(tries=4, base_s=0.01, cap_s=0.05, patience_s=5)
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


def ask(
    server: LlmServer,
    *,
    endpoint: dict[str, Any] | None = None,
    on_token: Callable[[str], None] = lambda text: None,
    cancelled: Callable[[], bool] = lambda: False,
    **request: Any,
) -> Completion:
    fields: dict[str, Any] = {"base_url": server.url, "key": KEY, "allow_private": True, "policy": QUICK} | (
        endpoint or {}
    )
    provider = OpenAiCompatible(Endpoint(**fields), random.Random(1))
    question: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Why?"}],
        "model": "tiny",
        "timeout_s": 10.0,
    } | request
    return provider.complete(CompletionRequest(**question), on_token=on_token, cancelled=cancelled)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_an_answer_arrives_piece_by_piece_with_its_usage(server: LlmServer, api: str) -> None:
    server.script(Reply(text="def f(): pass", pause_s=0.02))
    seen: list[str] = []
    answer = ask(server, api=api, on_token=seen.append)
    assert answer.text == "".join(seen) == "def f(): pass"
    assert (answer.usage.prompt, answer.usage.answer, answer.finish) == (100, 20, "stop")
    assert answer.first_token_s is not None and answer.duration_s is not None


def test_a_temperature_the_model_does_not_know_is_left_out_and_reported(server: LlmServer) -> None:
    server.script(Reply(refuses=("temperature", "reasoning_effort")))
    answer = ask(server, temperature=0.3, effort="high", max_tokens=50)
    assert set(answer.dropped) == {"temperature", "reasoning_effort"}
    last = server.asked[-1].body
    assert "temperature" not in last and last["max_completion_tokens"] == 50


def test_a_server_without_json_schema_gets_the_schema_in_words(server: LlmServer) -> None:
    server.script(Reply(refuses=("response_format",), text='{"n": 1}'))
    answer = ask(server, schema=SCHEMA)
    assert answer.dropped == ("response_format",)
    assert '"integer"' in server.asked[-1].body["messages"][-1]["content"]
    assert server.asked[0].body["response_format"]["json_schema"]["schema"] == SCHEMA


def test_a_bare_bad_request_is_taken_as_missing_structured_answers(server: LlmServer) -> None:
    server.script(error(400, "Bad request"), Reply(text="{}"))
    assert ask(server, schema=SCHEMA).dropped == ("response_format",)


def test_an_older_server_gets_max_tokens_under_its_old_name(server: LlmServer) -> None:
    server.script(Reply(refuses=("max_completion_tokens",)))
    ask(server, max_tokens=33)
    assert server.asked[-1].body["max_tokens"] == 33


def test_a_busy_server_is_asked_again_no_sooner_than_it_wants(server: LlmServer) -> None:
    server.script(error(429, "slow down", headers={"Retry-After": "1"}), Reply(text="now"))
    answer = ask(server)
    assert answer.text == "now" and len(answer.tries) == 1
    assert server.asked[1].at - server.asked[0].at >= 1.0


def test_a_server_that_wants_an_hour_is_not_waited_for(server: LlmServer) -> None:
    server.script(error(429, "come back", headers={"Retry-After": "3600"}))
    with pytest.raises(ProviderUnavailableError, match="3600 s"):
        ask(server)
    assert len(server.asked) == 1


def test_an_empty_account_is_not_asked_again(server: LlmServer) -> None:
    server.script(error(429, "You exceeded your current quota", code="insufficient_quota"))
    with pytest.raises(ProviderRefusedError, match="quota"):
        ask(server)
    assert len(server.asked) == 1


def test_repeated_server_errors_end_after_the_allowed_tries(server: LlmServer) -> None:
    server.script(error(503, "overloaded"))
    with pytest.raises(ProviderUnavailableError) as caught:
        ask(server)
    assert len(server.asked) == QUICK.tries and len(caught.value.tries) == QUICK.tries - 1
    assert not caught.value.maybe_spent


def test_a_cut_stream_is_an_interruption_that_keeps_what_came(server: LlmServer) -> None:
    server.script(Reply(text="x" * 200, cut_after=70))
    with pytest.raises(InterruptedStreamError) as caught:
        ask(server)
    assert caught.value.partial == "x" * 70 and caught.value.maybe_spent
    assert len(server.asked) == 1, "what may have been paid for is not repeated here"


def test_a_stream_without_an_end_is_an_interruption(server: LlmServer) -> None:
    server.script(Reply(text="half an ans", silent_end=True))
    with pytest.raises(InterruptedStreamError, match="middle"):
        ask(server)


def test_a_server_that_falls_silent_in_mid_stream_is_given_up(server: LlmServer) -> None:
    server.script(Reply(text="x" * 40, pause_s=3))
    started = time.monotonic()
    with pytest.raises(InterruptedStreamError, match="stopped sending"):
        ask(server, endpoint={"silence_s": 0.3})
    assert time.monotonic() - started < 2.5


def test_dripping_bytes_do_not_outlast_the_time_limit(server: LlmServer) -> None:
    server.script(Reply(text="x" * 4000, piece=1, pause_s=0.05))
    started = time.monotonic()
    with pytest.raises(InterruptedStreamError, match="longer than its time"):
        ask(server, timeout_s=0.6)
    assert time.monotonic() - started < 20, "the whole answer takes 200 s"


def test_a_cancelled_request_is_dropped_long_before_its_answer_ends(server: LlmServer) -> None:
    server.script(Reply(text="x" * 4000, pause_s=0.2))
    wanted = threading.Event()
    started = time.monotonic()
    with pytest.raises(CallCancelledError) as caught:
        ask(server, on_token=lambda text: wanted.set(), cancelled=wanted.is_set)
    assert time.monotonic() - started < 20, "the whole answer takes 114 s"
    assert caught.value.partial


def test_a_stream_of_rubbish_is_an_interruption(server: LlmServer) -> None:
    server.script(Reply(body="data: {not json}\n\n"))
    with pytest.raises(InterruptedStreamError, match="not JSON"):
        ask(server)


def test_an_error_event_in_the_stream_is_an_interruption(server: LlmServer) -> None:
    server.script(Reply(body='data: {"error": {"message": "engine died"}}\n\n'))
    with pytest.raises(InterruptedStreamError, match="engine died"):
        ask(server)


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("body", ["<html>welcome</html>", "{}", "[]", "null"])
def test_an_address_that_is_no_such_api_is_refused_with_a_hint_and_not_asked_for_ever(
    server: LlmServer, api: str, body: str
) -> None:
    server.script(Reply(body=body, headers={"Content-Type": "text/html"} if "<" in body else {}))
    with pytest.raises(ProviderRefusedError, match="check the address") as caught:
        ask(server, api=api)
    assert not caught.value.maybe_spent, "nobody was paid for a page"


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_an_error_that_comes_as_success_is_told_in_the_servers_words(server: LlmServer, api: str) -> None:
    server.script(Reply(body='{"error": {"message": "no worker is free"}}'))
    with pytest.raises(InterruptedStreamError, match="no worker is free"):
        ask(server, api=api)


@pytest.mark.parametrize(
    ("api", "event"),
    [
        ("responses", {"type": "response.completed"}),
        ("responses", {"type": "response.completed", "response": {"status": "completed", "incomplete_details": 5}}),
        ("responses", {"type": "error", "message": "engine died"}),
        ("chat", {"choices": 5}),
    ],
)
def test_events_of_another_shape_are_an_interruption_that_may_have_cost(
    server: LlmServer, api: str, event: dict[str, Any]
) -> None:
    server.script(Reply(body=f"data: {json.dumps(event)}\n\n"))
    with pytest.raises(InterruptedStreamError) as caught:
        ask(server, api=api)
    assert caught.value.maybe_spent


def test_fields_of_another_type_are_left_out_and_text_parts_are_read(server: LlmServer) -> None:
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "said"}]
    chunk = {"id": 5, "model": 5, "choices": [{"delta": {"content": parts, "refusal": 5}, "finish_reason": "STOP"}]}
    server.script(Reply(body=f"data: {json.dumps(chunk)}\n\n"))
    answer = ask(server)
    assert (answer.text, answer.model, answer.finish, answer.refusal) == ("said", "", "stop", "")


@pytest.mark.parametrize(
    ("word", "finish"), [("end_turn", "stop"), ("eos_token", "stop"), ("max_tokens", "length")]
)
def test_other_servers_words_for_the_end_are_understood(server: LlmServer, word: str, finish: str) -> None:
    server.script(Reply(finish=word))
    assert ask(server).finish == finish


def test_a_server_that_cannot_stream_is_asked_for_the_whole_answer(server: LlmServer) -> None:
    server.script(Reply(body=""), Reply(text="in one piece"))
    answer = ask(server)
    assert answer.text == "in one piece" and "stream" in answer.dropped
    assert "stream" not in server.asked[-1].body


def test_a_refusal_is_not_an_empty_answer(server: LlmServer) -> None:
    server.script(Reply(text="", refusal="I cannot help with that."))
    answer = ask(server)
    assert answer.finish == "refusal" and "cannot" in answer.refusal


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_an_answer_that_hit_its_limit_says_so(server: LlmServer, api: str) -> None:
    server.script(Reply(text="half", finish="length"))
    assert ask(server, api=api).finish == "length"


def test_an_endless_answer_is_cut_at_the_cap(server: LlmServer) -> None:
    server.script(Reply(text="y" * (MAX_ANSWER_CHARACTERS + 300_000), piece=100_000))
    answer = ask(server)
    assert answer.finish == "too_long" and len(answer.text) == MAX_ANSWER_CHARACTERS


def test_the_key_is_removed_from_answers_and_errors_that_repeat_it(server: LlmServer) -> None:
    server.script(Reply(text=f"your key is {KEY}, not {KEY[:9]}", piece=5, pause_s=0.01))
    seen: list[str] = []
    answer = ask(server, on_token=seen.append)
    assert "".join(seen) == answer.text == f"your key is [key], not {KEY[:9]}"
    server.key = "another"
    with pytest.raises(ProviderRefusedError) as caught:
        ask(server)
    assert KEY not in str(caught.value) and "401" in str(caught.value)


def test_a_redirect_is_not_followed(server: LlmServer) -> None:
    server.script(Reply(status=302, body="", headers={"Location": "http://169.254.169.254/latest/meta-data"}))
    with pytest.raises((ProviderRefusedError, InterruptedStreamError)):
        ask(server)
    assert len(server.asked) == 1


def test_headers_from_the_workers_environment_stay_here(server: LlmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-canary")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Secret: canary")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other-canary")
    ask(server)
    sent = str(server.asked[0].headers)
    assert "canary" not in sent.replace(KEY, "") and "x-stainless" not in sent


def test_nothing_listens_there(server: LlmServer) -> None:
    with pytest.raises(ProviderUnavailableError, match="connection failed"):
        ask(server, endpoint={"base_url": "http://127.0.0.1:9/v1", "policy": RetryPolicy(tries=2, base_s=0.01)})


@pytest.mark.parametrize(
    ("headers", "expected_s"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "Sat, 01 Jan 2028 00:00:30 GMT"}, 30.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_as_seconds_or_date(headers: dict[str, str], expected_s: float | None) -> None:
    assert retry_after_s(headers, dt.datetime(2028, 1, 1, tzinfo=dt.UTC)) == expected_s


def test_back_off_grows_with_jitter_and_ends() -> None:
    policy, rng = RetryPolicy(tries=4, base_s=1, cap_s=3), random.Random(3)
    ceilings = [1, 2, 3]
    for failures, ceiling in enumerate(ceilings, start=1):
        pauses = [policy.pause_s(failures, None, rng) or 0.0 for _ in range(200)]
        assert max(pauses) <= ceiling and len(set(pauses)) > 100 and max(pauses) > 0.8 * ceiling
    assert policy.pause_s(4, None, rng) is None

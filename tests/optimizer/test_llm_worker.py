"""Questions answered by a worker: stored before they are sent, paid for once, never lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.conf import settings
from django.db import close_old_connections, connection
from django.utils import timezone

from optimizer.calls.stream import TokenStream
from optimizer.calls.worker import answer
from optimizer.models import CallState, Campaign, CampaignCell, LlmCall, Provider, Run, RunEvent
from optimizer.queries.budgets import Budget
from optimizer.runs.history import call_views
from optimizer.upkeep.sweep import sweep
from tests.asking_runs import make_asking_run
from tests.campaigns import make_campaign
from tests.factories import drive
from tests.llm_server import KEY, LlmServer, Reply, error, llm_server

KERNEL = """Title: {title}
A plain loop.
```cpp
// {title}
#include <cmath>
extern "C" void softmax_rows(const float* x, float* y) {{ y[0] = x[0]; }}
```"""


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with llm_server() as running:
        running.script(Reply(text=KERNEL.format(title="first"), piece=40))
        yield running


def asked_run(server: LlmServer, *, budget: Budget | None = None, concurrency: int = 1, **provider: Any) -> Run:
    """Return a run whose strategy has just asked its first questions."""
    run = make_asking_run(server, {"concurrency": concurrency}, budget, **provider)
    assert LlmCall.objects.filter(run=run, state=CallState.QUEUED).count() == concurrency
    return run


def first_call(run: Run) -> LlmCall:
    return LlmCall.objects.filter(run=run).order_by("pk")[0]


@pytest.mark.django_db
def test_an_answer_is_stored_with_prompt_tokens_and_cost(server: LlmServer) -> None:
    run = asked_run(server, prices={"m1": {"input": 2, "output": 10}})
    assert answer(first_call(run).pk)
    call = first_call(run)
    run.refresh_from_db()
    assert call.state == CallState.ANSWERED and call.answer is not None
    assert "softmax_rows" in call.answer["source"] and call.answer["title"] == "first"
    assert call.messages[0]["role"] == "system" and call.prompt_version.startswith("solo@")
    assert server.asked[0].body["messages"] == call.messages
    assert (call.prompt_tokens, call.answer_tokens, call.cost_usd) == (100, 20, Decimal("0.0004"))
    assert (run.spent_tokens, run.spent_usd) == (120, Decimal("0.0004"))
    assert call.transport["finish"] == "stop" and call.transport["price"]["source"] == "entered by the team"
    ended = RunEvent.objects.get(run=run, type="call.ended")
    assert ended.payload["spent_tokens"] == 120


@pytest.mark.django_db
def test_an_unknown_price_stays_unknown(server: LlmServer) -> None:
    run = asked_run(server)
    answer(first_call(run).pk)
    run.refresh_from_db()
    assert first_call(run).cost_usd is None and run.spent_usd == 0 and run.spent_tokens == 120


@pytest.mark.django_db
def test_a_second_worker_finds_nothing_to_do(server: LlmServer) -> None:
    run = asked_run(server)
    assert answer(first_call(run).pk) and not answer(first_call(run).pk)
    assert len(server.asked) == 1


@pytest.mark.django_db
def test_the_run_goes_on_with_the_answered_kernel(server: LlmServer) -> None:
    run = asked_run(server)
    answer(first_call(run).pk)
    drive(run, rounds=6)
    assert run.kernels.filter(author_kind="agent", title="first").exists()


@pytest.mark.django_db
def test_an_unusable_answer_is_repaired_once_with_its_fault_named(server: LlmServer) -> None:
    server.script(Reply(text="Use tiles."), Reply(text=KERNEL.format(title="mended")))
    run = asked_run(server)
    answer(first_call(run).pk)
    bad, again = LlmCall.objects.filter(run=run).order_by("attempt")
    assert (bad.state, bad.transport["fault"], bad.answer_text) == (CallState.FAILED, "no_code", "Use tiles.")
    assert again.state == CallState.QUEUED and again.attempt == 2
    answer(again.pk)
    again.refresh_from_db()
    assert again.state == CallState.ANSWERED
    said = server.asked[1].body["messages"]
    assert said[-2] == {"role": "assistant", "content": "Use tiles."} and "no code block" in said[-1]["content"]
    run.refresh_from_db()
    assert run.spent_tokens == 240, "failed answers cost too"


@pytest.mark.django_db
def test_a_question_costs_what_all_its_attempts_cost(server: LlmServer) -> None:
    run = asked_run(server)
    call = first_call(run)
    rows = [(1, "0.25"), (2, None), (3, "0.5")]
    LlmCall.objects.filter(run=run).delete()
    for attempt, cost_usd in rows:
        LlmCall.objects.create(
            run=run,
            key=call.key,
            attempt=attempt,
            role=call.role,
            provider="tiny",
            cost_usd=cost_usd,
            state="failed",
        )
    assert call_views(run)[call.key].cost_usd == 0.75


@pytest.mark.django_db
def test_an_answer_that_stays_unusable_ends_the_question(server: LlmServer) -> None:
    server.script(Reply(text="Use tiles."))
    run = asked_run(server)
    answer(first_call(run).pk)
    answer(LlmCall.objects.get(run=run, attempt=2).pk)
    assert list(LlmCall.objects.filter(run=run).values_list("state", flat=True)) == [CallState.FAILED] * 2
    drive(run, rounds=4)
    assert LlmCall.objects.filter(run=run, state=CallState.QUEUED).exists(), "the run goes on with the next attempt"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("reply", "fault", "asked_again"),
    [
        (Reply(text=""), "empty", True),
        (Reply(text="", refusal="No."), "refused", False),
        (Reply(text="```cpp\nint", finish="length"), "truncated", True),
        (Reply(text="```cpp\nint a;\n```\n```cpp\nint b;\n```"), "several_blocks", True),
    ],
)
def test_each_bad_answer_is_stored_under_its_fault(
    server: LlmServer, reply: Reply, fault: str, asked_again: bool
) -> None:
    server.script(reply)
    run = asked_run(server)
    answer(first_call(run).pk)
    call = first_call(run)
    assert (call.state, call.transport["fault"]) == (CallState.FAILED, fault)
    assert LlmCall.objects.filter(run=run, attempt=2).exists() == asked_again


@pytest.mark.django_db
def test_a_cut_stream_is_uncertain_and_asked_again(server: LlmServer) -> None:
    server.script(Reply(text="x" * 400, cut_after=70), Reply(text=KERNEL.format(title="whole")))
    run = asked_run(server)
    answer(first_call(run).pk)
    cut, again = LlmCall.objects.filter(run=run).order_by("attempt")
    assert cut.state == CallState.UNCERTAIN and cut.answer_text == "x" * 70 and cut.transport["estimated"]
    answer(again.pk)
    again.refresh_from_db()
    assert again.state == CallState.ANSWERED and again.messages == cut.messages


@pytest.mark.django_db
def test_a_wrong_key_fails_the_question_and_shows_no_key(server: LlmServer) -> None:
    run = asked_run(server)
    server.key = "another"
    answer(first_call(run).pk)
    call = first_call(run)
    assert call.state == CallState.FAILED and "401" in call.error and KEY not in call.error
    run.refresh_from_db()
    assert run.spent_tokens == 0


@pytest.mark.django_db
def test_a_spent_budget_asks_nothing(server: LlmServer) -> None:
    run = asked_run(server, budget=Budget(evaluations=6, tokens=100))
    Run.objects.filter(pk=run.pk).update(spent_tokens=100)
    answer(first_call(run).pk)
    assert first_call(run).state == CallState.FAILED and "budget" in first_call(run).error and not server.asked


@pytest.mark.django_db
def test_a_missing_provider_fails_the_question_in_words(server: LlmServer) -> None:
    run = asked_run(server)
    Provider.objects.all().delete()
    answer(first_call(run).pk)
    assert "no provider called tiny" in first_call(run).error


@pytest.mark.django_db
def test_what_the_server_refused_is_left_out_of_the_next_request(server: LlmServer) -> None:
    server.script(Reply(text=KERNEL.format(title="t"), refuses=("temperature",)))
    run = asked_run(server, concurrency=2)
    for call in LlmCall.objects.filter(run=run):
        answer(call.pk)
    assert ["temperature" in asked.body for asked in server.asked] == [True, False, False]


@pytest.mark.django_db
def test_a_paused_run_is_left_in_peace(server: LlmServer) -> None:
    run = asked_run(server)
    Run.objects.filter(pk=run.pk).update(state="paused")
    assert not answer(first_call(run).pk) and first_call(run).state == CallState.QUEUED


@pytest.mark.django_db(transaction=True)
def test_no_more_questions_are_open_than_the_provider_allows(server: LlmServer) -> None:
    server.script(Reply(text=KERNEL.format(title="slow"), wait_s=0.4))
    run = asked_run(server, concurrency=6, budget=Budget(evaluations=30))
    Provider.objects.filter(team=run.team).update(concurrency=2)

    def work() -> None:
        try:
            for _ in range(40):
                for pk in LlmCall.objects.filter(run=run, state=CallState.QUEUED).values_list("pk", flat=True):
                    answer(pk)
                time.sleep(0.05)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.open_most == 2
    assert LlmCall.objects.filter(run=run, state=CallState.ANSWERED).count() == 6
    run.refresh_from_db()
    assert run.spent_tokens == 6 * 120


WORKER = """
import sys, django
django.setup()
from django.conf import settings
settings.DATABASES["default"]["NAME"] = sys.argv[2]
from optimizer.calls.worker import answer
answer(int(sys.argv[1]))
"""


@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_in_the_middle_of_a_call_costs_one_uncertain_row_and_nothing_else(
    server: LlmServer,
) -> None:
    server.script(Reply(text="x" * 4000, pause_s=0.05), Reply(text=KERNEL.format(title="second life")))
    run = asked_run(server, prices={"m1": {"input": 2, "output": 10}})
    call = first_call(run)
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": os.environ.get("DJANGO_SETTINGS_MODULE", "tests.settings")
    }
    name = connection.settings_dict["NAME"]
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(call.pk), name], env=environment)
    try:
        _wait_until(lambda: first_call(run).state == CallState.ASKING and bool(server.asked))
        time.sleep(0.5)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    assert not answer(call.pk), "the lease still holds"
    LlmCall.objects.filter(pk=call.pk).update(lease_until=timezone.now())
    sweep()
    lost, again = LlmCall.objects.filter(run=run).order_by("attempt")
    assert lost.state == CallState.UNCERTAIN and lost.cost_usd is None and lost.messages
    assert answer(again.pk)
    drive(run, rounds=6)
    run.refresh_from_db()
    assert run.kernels.filter(title="second life").exists()
    assert (run.spent_tokens, run.spent_usd) == (120, Decimal("0.0004"))


@pytest.mark.django_db(transaction=True)
def test_a_stopped_run_ends_the_request_under_way(server: LlmServer) -> None:
    from optimizer.calls.lifecycle import do_cancel_calls
    from optimizer.runs.locking import lock_run

    server.script(Reply(text="x" * 4000, pause_s=0.1))
    run = asked_run(server)
    call = first_call(run)

    def stop() -> None:
        from django.db import transaction

        _wait_until(lambda: bool(server.asked))
        with transaction.atomic():
            do_cancel_calls(lock_run(run.pk))
        connection.close()

    thread = threading.Thread(target=stop)
    thread.start()
    started = time.monotonic()
    answer(call.pk)
    thread.join()
    call.refresh_from_db()
    assert time.monotonic() - started < 8 and call.state == CallState.CANCELLED
    assert call.answer_text.startswith("x") and call.transport["estimated"], "what came, and what it may have cost"


def _wait_until(condition: Any, patience_s: float = 120.0) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    close_old_connections()


def test_keys_are_decrypted_with_old_secrets_and_encrypted_with_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    from optimizer.secrets import keys

    monkeypatch.setattr(settings, "PROVIDER_KEY_SECRETS", ["old"])
    token = keys.encrypt("sk-1")
    monkeypatch.setattr(settings, "PROVIDER_KEY_SECRETS", ["new", "old"])
    newer = keys.rotated(token)
    assert keys.decrypt(token) == keys.decrypt(newer) == "sk-1"
    monkeypatch.setattr(settings, "PROVIDER_KEY_SECRETS", ["new"])
    assert keys.decrypt(newer) == "sk-1"
    with pytest.raises(keys.UnreadableKeyError):
        keys.decrypt(token)


@pytest.mark.django_db
def test_retried_refusals_are_kept_with_the_call(server: LlmServer) -> None:
    server.script(error(429, "slow down", headers={"Retry-After": "0"}), Reply(text=KERNEL.format(title="t")))
    run = asked_run(server)
    answer(first_call(run).pk)
    assert "slow down" in first_call(run).transport["tries"][0]["error"]


@pytest.mark.django_db
def test_a_limit_in_dollars_asks_nobody_whose_price_is_unknown(server: LlmServer) -> None:
    run = asked_run(server, prices={"m1": {"input": 2, "output": 10}}, budget=Budget(evaluations=6, usd=Decimal(1)))
    Provider.objects.update(prices={})  # known when the run began, withdrawn since
    answer(first_call(run).pk)
    assert "m1 has no known price at tiny" in first_call(run).error and not server.asked


@pytest.mark.django_db
@pytest.mark.parametrize("price", [0, 2])
def test_a_limit_of_zero_dollars_asks_free_models_alone(server: LlmServer, price: int) -> None:
    server.script(Reply(text=KERNEL.format(title="t")))
    prices = {"m1": {"input": price, "output": price}}
    run = asked_run(server, prices=prices, budget=Budget(evaluations=6, usd=Decimal(0)))
    answer(first_call(run).pk)
    call = first_call(run)
    assert (call.state == CallState.ANSWERED, bool(server.asked)) == (price == 0, price == 0)
    assert price == 0 or "The run may spend no dollars, and m1 is not free at tiny" in call.error


@pytest.mark.django_db
def test_a_campaigns_limit_of_zero_dollars_holds_for_runs_without_one(server: LlmServer) -> None:
    run = asked_run(server, prices={"m1": {"input": 2, "output": 2}})
    campaign = make_campaign(run.team)
    Campaign.objects.update(limit_usd=0)
    CampaignCell.objects.filter(pk=campaign.cells.order_by("pk")[0].pk).update(run=run)
    answer(first_call(run).pk)
    assert "The run may spend no dollars" in first_call(run).error and not server.asked


def test_tokens_reach_the_page_in_order_and_at_most_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr("optimizer.calls.stream.broadcast", lambda run, kind, **content: sent.append(content))
    stream, started = TokenStream(1, 2, "writer"), time.monotonic()
    while time.monotonic() - started < 1.0:
        stream.add("ab")
        time.sleep(0.005)
    stream.flush()
    assert 4 <= len(sent) <= 11
    position = 0
    for message in sent:
        assert message["start"] == position
        position += len(message["text"])
    assert position % 2 == 0 and "".join(message["text"] for message in sent).startswith("abab")

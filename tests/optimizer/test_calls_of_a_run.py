"""Test that questions to models are paid for once, and asked again when their worker is lost."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from optimizer.actions.run import do_stop_run
from optimizer.calls.lifecycle import do_claim_call, do_end_call, do_keep_call, do_request_call
from optimizer.loop import advance
from optimizer.models import CallState, LlmCall, Provider, Run
from optimizer.queries.budgets import Budget
from optimizer.runs.history import call_views
from optimizer.runs.locking import lock_run
from optimizer.search.base import Ask
from optimizer.upkeep.sweep import sweep
from tests.factories import make_run, make_team

pytestmark = pytest.mark.django_db


@pytest.fixture
def call() -> LlmCall:
    """Return a question that waits to be sent."""
    team = make_team()
    Provider.objects.create(team=team, name="vllm", base_url="http://models.example/v1")
    run = make_run(team, providers={"writer": {"provider": "vllm", "model": "big", "temperature": 0.3}})
    advance(run.pk)
    with transaction.atomic():
        return do_request_call(lock_run(run.pk), Ask("w1", "writer", {"base": "seed.naive"}, "Kernel", 0.7))


def claimed(call: LlmCall) -> LlmCall:
    mine = do_claim_call(call.pk, "agent-1")
    assert mine is not None
    return mine


def lose(call: LlmCall) -> None:
    LlmCall.objects.filter(pk=call.pk).update(lease_until=timezone.now() - dt.timedelta(seconds=1))


def test_a_roles_own_provider_and_temperature_go_before_the_strategys(call: LlmCall) -> None:
    assert (call.provider, call.model, call.parameters) == ("vllm", "big", {"temperature": 0.3})


def test_a_decision_reads_no_prompts_and_takes_one_query_for_all_calls(call: LlmCall) -> None:
    with CaptureQueriesContext(connection) as queries:
        views = call_views(call.run)
    assert views["w1"].context == {"base": "seed.naive"}
    (query,) = queries
    assert not any(f'."{wide}"' in query["sql"] for wide in ("messages", "answer_text", "context_report"))


def test_a_question_is_claimed_by_one_worker_only(call: LlmCall) -> None:
    claimed(call)
    assert do_claim_call(call.pk, "agent-2") is None


def test_an_answer_is_booked_once(call: LlmCall) -> None:
    mine = claimed(call)
    cost = {"answer": {"code": "x"}, "prompt_tokens": 100, "answer_tokens": 20, "cost_usd": Decimal("0.5")}

    assert do_end_call(mine, CallState.ANSWERED, **cost) is True
    assert do_end_call(mine, CallState.ANSWERED, **cost) is False
    run = Run.objects.get(pk=call.run_id)
    assert (run.spent_tokens, run.spent_usd) == (120, Decimal("0.5"))


def test_a_lost_worker_makes_the_question_uncertain_and_it_is_asked_again(call: LlmCall) -> None:
    claimed(call)
    lose(call)
    assert sweep()["lost_calls"] == 1

    first, again = LlmCall.objects.filter(key="w1").order_by("attempt")
    assert (first.state, again.state, again.attempt) == (CallState.UNCERTAIN, CallState.QUEUED, 2)
    assert again.context == first.context


def test_an_answer_that_comes_after_the_question_was_given_up_is_paid_for_but_not_used(call: LlmCall) -> None:
    mine = claimed(call)
    lose(call)
    sweep()

    assert do_end_call(mine, CallState.ANSWERED, answer={"code": "late"}, prompt_tokens=7, answer_tokens=0) is False
    assert LlmCall.objects.get(pk=call.pk).state == CallState.UNCERTAIN
    assert Run.objects.get(pk=call.run_id).spent_tokens == 7


def test_stopping_a_run_closes_its_questions_and_the_worker_hears_of_it(call: LlmCall) -> None:
    mine = claimed(call)
    assert do_keep_call(mine) is True
    do_stop_run(None, call.run)

    assert do_keep_call(mine) is False
    assert LlmCall.objects.get(pk=call.pk).state == CallState.CANCELLED


def test_a_question_is_not_asked_for_ever(call: LlmCall) -> None:
    for _ in range(5):
        newest = LlmCall.objects.filter(key="w1").latest("attempt")
        if newest.state == CallState.QUEUED:
            claimed(newest)
            lose(newest)
            sweep()
    assert LlmCall.objects.filter(key="w1").count() == 3


def test_dollars_end_a_run() -> None:
    run = make_run(budget=Budget(evaluations=10, usd=Decimal("1.0")))
    advance(run.pk)
    Run.objects.filter(pk=run.pk).update(spent_usd=Decimal("1.2"))
    advance(run.pk)
    assert not Run.objects.get(pk=run.pk).kernels.filter(author_kind="tuner").exists()

"""Test several who answer one prompt at once, and answers that come too late."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from optimizer.actions.inbox import PromptClosedError, access_prompt, do_answer_prompt
from optimizer.actions.run import do_stop_run
from optimizer.models import CallState, LlmCall
from tests.optimizer.test_llm_inbox import GOOD, api, operator, post, waiting_prompt


@pytest.mark.django_db(transaction=True)
def test_of_two_who_answer_at_once_one_is_taken_and_the_other_is_told() -> None:
    prompt = waiting_prompt()
    read = [(user, access_prompt(user, prompt.pk)) for user in (operator(prompt), operator(prompt))]
    together = threading.Barrier(2)
    ended: list[str] = []

    def give(index: int) -> None:
        user, call = read[index]
        together.wait()
        try:
            do_answer_prompt(user, call, GOOD.replace("int x", f"int x{index}"))
            ended.append("taken")
        except PromptClosedError:
            ended.append("told")
        finally:
            connection.close()

    threads = [threading.Thread(target=give, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == ["taken", "told"]
    stored = LlmCall.objects.get(pk=prompt.pk)
    assert stored.answer is not None and stored.answer["source"].strip() in stored.answer_text


@pytest.mark.django_db
def test_an_answer_after_the_run_was_stopped_is_refused_in_words_and_changes_nothing() -> None:
    prompt = waiting_prompt()
    do_stop_run(operator(prompt), prompt.run)
    reply = post(api(operator(prompt)), f"/{prompt.pk}/answer", {"text": GOOD})
    assert (reply.status_code, reply.json()["detail"]) == (409, "this prompt is closed")
    stored = LlmCall.objects.get(pk=prompt.pk)
    assert stored.state == CallState.CANCELLED and stored.answer is None and stored.answer_text == ""

"""Every role may have a server, a model, a key and parameters of its own."""

from __future__ import annotations

import pytest
from django.db import transaction

from optimizer.calls.worker import answer
from optimizer.loop.steps import take_steps
from optimizer.models import CallState, LlmCall
from optimizer.runs.locking import lock_run
from optimizer.search.base import Ask
from tests.factories import drive, make_provider, make_run, make_team
from tests.llm_server import LlmServer, Reply, llm_server


@pytest.mark.django_db
def test_two_roles_ask_two_servers_with_their_own_key_model_effort_and_temperature(server: LlmServer) -> None:
    notes = Reply(text='{"findings": []}')
    with llm_server() as other:
        other.key = "sk-of-the-other-server"
        server.script(notes)
        other.script(notes)
        team = make_team()
        make_provider(server, team)
        make_provider(other, team, name="other", default_model="m2", api="chat")
        run = make_run(
            team,
            providers={
                "default": {"provider": "tiny", "temperature": 0.1},
                "findings": {"provider": "other", "model": "m3", "effort": "high", "temperature": 0.9},
            },
        )
        drive(run, rounds=1)
        with transaction.atomic():
            asks = [Ask(role, role, {"round": 0}, "FindingsAnswer") for role in ("findings", "digest")]
            take_steps(lock_run(run.pk), asks)
        for call in LlmCall.objects.filter(run=run):
            answer(call.pk)
        assert set(LlmCall.objects.filter(run=run).values_list("state", flat=True)) == {CallState.ANSWERED}
        (mine,), (theirs,) = server.asked, other.asked
    assert (mine.body["model"], mine.body["temperature"]) == ("m1", 0.1) and "reasoning_effort" not in mine.body
    assert (theirs.body["model"], theirs.body["temperature"], theirs.body["reasoning_effort"]) == (
        "m3",
        0.9,
        "high",
    )

"""Test tools through the API of a model's server: both dialects, servers without tools, lost workers, replays."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from django.utils import timezone

from optimizer import queue
from optimizer.actions.job import do_fail_job, do_finish_job, do_start_job
from optimizer.calls.record import record_of
from optimizer.calls.worker import answer
from optimizer.llm.recording import from_bytes, to_bytes
from optimizer.models import CallState, CallTurn, Job, LlmCall, Provider, Record, Run, ToolCall
from optimizer.queries.budgets import Budget
from optimizer.upkeep.sweep import sweep
from runners.job import JobResult, Status
from runners.job_source import Receipt
from tests.asking_runs import make_asking_run
from tests.factories import drive, make_run
from tests.llm_server import LlmServer, Reply
from tests.optimizer.test_tools_inbox import SOURCE, tools

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
BUILD = Reply(text="I look first.", tools=(("build", json.dumps({"source": SOURCE})),), finish="tool_calls")
SUBMIT = Reply(
    text="", tools=(("submit", json.dumps({"title": "By tool", "report": "Done."})),), finish="tool_calls"
)
READ = (("read_kernel", '{"number": 0}'),)


def asked(server: LlmServer, *, settings: dict[str, Any] | None = None, **provider: Any) -> LlmCall:
    """Return a run's first question, with tools."""
    run = make_asking_run(server, {"tools": "build"} | (settings or {}), **provider)
    return LlmCall.objects.get(run=run)


def played(call: LlmCall, rounds: int = 6) -> LlmCall:
    """Let worker and tools go on until the question has ended."""
    mine = LlmCall.objects.filter(run=call.run_id, key=call.key)
    for _ in range(rounds):
        for pk in mine.filter(state=CallState.QUEUED).values_list("pk", flat=True):
            answer(pk)
        drive(call.run, tools, rounds=1)
        if all(CallState(state).is_terminal for state in mine.values_list("state", flat=True)):
            break
    return mine.latest("attempt")


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_model_builds_reads_the_report_and_submits(server: LlmServer, api: str) -> None:
    server.script(BUILD, SUBMIT)
    call = played(asked(server, api=api))
    assert call.state == CallState.ANSWERED and call.answer is not None
    assert (call.answer["source"], call.answer["title"]) == (SOURCE, "By tool")
    first, second = (asked.body for asked in server.asked[:2])
    assert [tool.get("name") or tool["function"]["name"] for tool in first["tools"]][-1] == "submit"
    result = (second["messages"] if api == "chat" else second["input"])[-1]
    told = result["content"] if api == "chat" else result["output"]
    assert "registers 40" in told and "<<<BEGIN DATA" in told
    assert (result.get("tool_call_id") or result["call_id"]) == "call_0"
    assert (call.prompt_tokens, call.answer_tokens) == (200, 40)
    call.run.refresh_from_db()
    assert call.run.spent_tokens == 240


def test_encrypted_reasoning_travels_with_the_conversation(server: LlmServer) -> None:
    server.script(BUILD, SUBMIT)
    played(asked(server, api="responses"))
    kinds = [item.get("type", item.get("role")) for item in server.asked[1].body["input"]]
    assert kinds == ["system", "user", "reasoning", "assistant", "function_call", "function_call_output"]
    assert server.asked[0].body["include"] == ["reasoning.encrypted_content"]


def test_whole_calls_without_an_index_are_read_and_their_signatures_sent_back(server: LlmServer) -> None:
    calls = (*READ, ("build", json.dumps({"source": SOURCE})))
    server.script(Reply(text="", tools=calls, whole_tools=True, finish="tool_calls"), SUBMIT)
    played(asked(server))
    said = server.asked[1].body["messages"][-3]
    assert [call["function"]["name"] for call in said["tool_calls"]] == ["read_kernel", "build"]
    assert said["tool_calls"][0]["extra_content"] == {"google": {"signature": "x"}}


def test_a_server_without_tools_is_spoken_to_in_text(server: LlmServer) -> None:
    in_text = Reply(text=f"TOOL: build\n```cpp\n{SOURCE}```", refuses=("tools",))
    server.script(in_text, in_text, Reply(text="TOOL: submit\ntitle: In text", refuses=("tools",)))
    call = played(asked(server))
    assert call.state == CallState.ANSWERED and call.answer is not None and call.answer["title"] == "In text"
    said = server.asked[1].body
    assert "tools" not in said and "TOOL: build" in said["messages"][0]["content"]
    assert "registers 40" in server.asked[2].body["messages"][-1]["content"]
    assert "tools" in Provider.objects.get().refuses("m1")


def test_a_provider_that_ignores_tools_answers_as_ever(server: LlmServer) -> None:
    server.script(Reply(text=f"Title: Plain\n```cpp\n{SOURCE}```"))
    call = played(asked(server))
    assert call.state == CallState.ANSWERED and not ToolCall.objects.exists()


def test_a_model_that_calls_tools_for_ever_is_offered_the_submission_alone_and_then_ended(
    server: LlmServer,
) -> None:
    server.script(Reply(text="", tools=READ, finish="tool_calls"))
    call = played(asked(server, settings={"tool_calls": 3}))
    assert call.state == CallState.FAILED and "All 3 tool calls" in call.error
    assert [len(one.body["tools"]) for one in server.asked[:5]] == [5, 5, 5, 1, 1]
    assert LlmCall.objects.filter(run=call.run).exclude(key=call.key).exists(), "the run goes on"


def test_the_tokens_of_a_question_are_limited(server: LlmServer) -> None:
    usage = {"prompt_tokens": 900, "completion_tokens": 200}
    server.script(Reply(text="", tools=READ, finish="tool_calls", usage=usage))
    call = played(asked(server, settings={"tool_tokens": 1000}))
    assert call.state == CallState.FAILED and "All 1,000 tokens" in call.error and call.turns.count() == 1


def test_arguments_of_five_megabytes_end_the_attempt_with_a_reason(server: LlmServer) -> None:
    server.script(Reply(text="", tools=(("build", json.dumps({"source": "x" * 5_000_000})),), piece=200_000))
    call = played(asked(server))
    assert call.state == CallState.FAILED and "longer than" in call.error and not ToolCall.objects.exists()


@pytest.mark.parametrize(
    "arguments",
    ["[1, 2]", '{"source": ', '{"nonsense": 1}', '{"source": 7}', '{"source": "int x;", "language": "cobol"}'],
)
def test_unusable_arguments_are_explained_and_the_attempt_goes_on(server: LlmServer, arguments: str) -> None:
    server.script(Reply(text="", tools=(("build", arguments),), finish="tool_calls"), BUILD, SUBMIT)
    call = played(asked(server))
    assert call.state == CallState.ANSWERED
    assert list(ToolCall.objects.order_by("pk").values_list("state", flat=True)) == ["refused", "done"]


def test_a_runner_lost_in_the_middle_of_a_tool_counts_once_and_the_attempt_goes_on(server: LlmServer) -> None:
    server.script(BUILD, SUBMIT)
    call = asked(server)
    answer(call.pk)
    lost = queue.claim("bench.cpu", "first")
    assert lost is not None and lost.run_id == call.run_id and do_start_job(lost.job_id, lost.fence)
    expire(lost.job_id)
    again = queue.claim("bench.cpu", "second")
    assert again is not None and again.job_id == lost.job_id and do_start_job(again.job_id, again.fence)
    late = JobResult("tool", Status.CORRECT)
    assert do_finish_job(lost.job_id, lost.fence, late) == Receipt.REFUSED
    assert do_finish_job(again.job_id, again.fence, late) == Receipt.RECORDED
    assert do_finish_job(again.job_id, again.fence, late) == Receipt.REPEATED
    assert ToolCall.objects.filter(run=call.run).count() == 1
    assert played(call).state == CallState.ANSWERED


def test_a_tool_whose_runners_are_all_lost_says_so_and_the_attempt_goes_on(server: LlmServer) -> None:
    server.script(BUILD, SUBMIT)
    call = asked(server)
    answer(call.pk)
    for attempt in range(queue.MAX_ATTEMPTS):
        claimed = queue.claim("bench.cpu", f"worker {attempt}")
        assert claimed is not None
        expire(claimed.job_id)
    assert claimed is not None and do_fail_job(claimed.job_id, claimed.fence, "Its worker was lost 3 times.")
    tool = ToolCall.objects.get(run=call.run)
    assert tool.state == "failed" and "says nothing about the kernel" in tool.result_text
    assert played(call).state == CallState.ANSWERED


def test_a_lost_agents_worker_keeps_what_the_tools_have_found(server: LlmServer) -> None:
    server.script(BUILD, SUBMIT)
    call = asked(server)
    answer(call.pk)
    drive(call.run, tools, rounds=1)
    past = timezone.now() - dt.timedelta(seconds=1)
    LlmCall.objects.filter(pk=call.pk).update(state=CallState.ASKING, lease_until=past)
    sweep()
    again = played(call)
    assert again.attempt == 2 and again.state == CallState.ANSWERED and again.answer is not None
    assert again.answer["source"] == SOURCE and ToolCall.objects.filter(run=call.run).count() == 1
    assert "registers 40" in json.dumps(server.asked[1].body)


def test_a_run_with_tools_is_replayed_without_a_model(server: LlmServer) -> None:
    server.script(BUILD, SUBMIT)
    call = played(asked(server))
    record = from_bytes(to_bytes(record_of(call.run)))
    assert record.turns_to(call.key, call.role)[0].calls[0].arguments == {"source": SOURCE}
    requests = len(server.asked)
    Record.objects.create(team=call.run.team, name="mine", content=record.model_dump(mode="json"))
    run = make_run(
        call.run.team,
        strategy="sampling",
        settings=record.settings,
        seed=record.seed,
        providers={"default": {"provider": "replay", "record": "mine"}},
        budget=Budget(evaluations=1),
    )
    drive(run, rounds=12)
    again = played(LlmCall.objects.get(run=run))
    assert len(server.asked) == requests and again.answer == call.answer and again.state == CallState.ANSWERED
    assert ToolCall.objects.get(run=run).summary["headline"] == "Builds"
    assert CallTurn.objects.filter(call=again).exists() and Run.objects.get(pk=run.pk).spent_tokens == 0


def expire(job_id: int) -> None:
    """Let the lease of a job end, as when its worker was killed."""
    Job.objects.filter(pk=job_id).update(lease_until=timezone.now() - dt.timedelta(seconds=1))

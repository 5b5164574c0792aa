"""Store a model's turn, carry out the tools that it called, and store their results.

Lock order as everywhere: run, then call, then job. A turn, its tool calls and their jobs are created in one
transaction, and each result is recorded in the transaction that closes its job. A worker that is lost in between
therefore costs nothing: its job is claimed again, and the tool call still counts once, or not at all where every worker
was lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import transaction
from pydantic import ValidationError

from optimizer import queue
from optimizer.agents.answer_base import describe_problems
from optimizer.agents.code_blocks import AnswerError
from optimizer.agents.delimiters import Delimiters, cut_middle
from optimizer.calls.conversation import (
    Toolbox,
    is_over,
    last_draft,
    open_tool_calls,
    spent_by,
    tool_calls_of,
    toolbox_of,
    turns_of,
)
from optimizer.calls.lifecycle import PAID_COLUMNS, do_book, do_end_call
from optimizer.calls.prepare import basis_of, knowledge_of, mark_of
from optimizer.calls.tool_jobs import queue_tool_job, working_base_of
from optimizer.enqueue import enqueue_call, enqueue_run
from optimizer.events.payloads import ToolCalled, ToolEnded
from optimizer.events.record import record
from optimizer.llm.port import RequestedTool
from optimizer.models import CallState, CallTurn, Job, LlmCall, Run, ToolCall, ToolState, User
from optimizer.models.choices import OPEN_CALL_STATES, OPEN_JOB_STATES, OPEN_TOOL_STATES
from optimizer.queries.prediction import prediction_of_build
from optimizer.runs.evaluation import device_s
from optimizer.runs.history import told_history_of
from optimizer.text.storable import storable, storable_text
from optimizer.tools import results
from optimizer.tools.answers import answer
from optimizer.tools.catalogue import (
    MAX_SOURCE_CHARACTERS,
    SUBMIT,
    TOOLS,
    Arguments,
    KernelArguments,
    TimingArguments,
    Tool,
)
from optimizer.tools.limits import Spent, device_used_up, used_up
from optimizer.tools.sources import Draft, draft_of
from runners.job import Effort, JobResult, Status

# Further calls in one answer are refused. No useful answer needs more.
MOST_PER_TURN = 8
RESULT_CAP = 12_000
# Longer texts than any kernel are cut, so that megabytes are neither stored nor sent again.
MAX_ARGUMENT_CHARACTERS = MAX_SOURCE_CHARACTERS
KEPT_OF_ARGUMENTS = 4_000
# The efforts of jobs that run a kernel.
_ON_DEVICE = [effort.value for effort in Effort if effort != Effort.BUILD]
# Where a tool call's summary has the number of the call whose kernel it was timed against.
AGAINST = "against"
# Where it says that edits were applied to the source of the question, and what the model is told then.
ORIGINAL = "original"
EDITED_ORIGINAL = (
    "Your edits do not match the kernel of your last call. They were applied to the original source instead."
)


@dataclass(frozen=True)
class NewTurn:
    """Hold an answer that calls tools. `outcome` holds tokens, cost and transport, as `do_end_call` takes them."""

    text: str
    requested: Sequence[RequestedTool]
    native: bool = False
    items: Sequence[Mapping[str, Any]] = ()
    outcome: Mapping[str, Any] = field(default_factory=dict)
    answered_by: User | None = None


def do_take_turn(call: LlmCall, new: NewTurn) -> bool:
    """Store a turn and start its tools, or end the question when it goes on after its limits.

    Return False when the call was closed meanwhile: its tokens are booked, and nothing is started.
    """
    toolbox = toolbox_of(call)
    if reason := is_over(call, toolbox):
        return do_end_call(call, CallState.FAILED, error=f"{reason} No kernel was submitted.", **new.outcome)
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).select_related("target").get(pk=call.run_id)
        row = LlmCall.objects.select_for_update(of=("self",)).get(pk=call.pk)
        # A stale worker, or a second answer to the same prompt, must neither pay nor start anything.
        if row.fence != call.fence or row.answered_at is not None or row.state == CallState.TOOLS:
            return False
        row.run = run
        turn = _store_turn(row, new)
        do_book(run, turn)
        if row.state not in OPEN_CALL_STATES:
            return False
        desk = _Desk(run, row, turn, toolbox, spent_by(row), last_draft(row))
        for requested in new.requested[:MOST_PER_TURN]:
            _begin(desk, requested)
        _refuse_rest(desk, new.requested[MOST_PER_TURN:])
        _start_waiting(run, row, turn)
        row.state = CallState.TOOLS
        row.save(update_fields=["state"])
        _go_on_when_done(row)
    return True


def do_finish_tool_call(run: Run, call: ToolCall, result: JobResult) -> None:
    """Store what a runner found. Call under the run's lock, in the transaction that closes the job."""
    tool = TOOLS[call.name]
    state = ToolState.FAILED if result.status == Status.INFRA_ERROR else ToolState.DONE
    # Output of compilers and kernels is data, also where it is phrased as an instruction.
    base = _name_of(call.summary.get(AGAINST))
    said = storable_text(results.in_words(tool, result, base, _predicted(run, call, tool, result)))
    text = Delimiters(mark_of(run)).enclose(said, f"output of {tool.name}", RESULT_CAP)
    text = f"{EDITED_ORIGINAL}\n{text}" if call.summary.get(ORIGINAL) else text
    summary = call.summary | {
        "headline": results.headline(tool, result, base),
        "status": results.status(tool, result),
    }
    spent_s = device_s(result) if state == ToolState.DONE and tool.effort != Effort.BUILD else 0.0
    call.mark_ended(state, text, summary=storable(summary), device_s=spent_s)
    # A check by Triton's interpreter counts against the question's limit; the target's device is not used by it.
    if call.job is None or call.job.spec["target"] == run.target.key:
        run.spent_device_s += spent_s
        run.save(update_fields=["spent_device_s"])
    _announce_end(run, call)
    question = LlmCall.objects.select_for_update(of=("self",)).get(pk=call.turn.call_id)
    question.run = run
    if question.state == CallState.TOOLS:
        _start_waiting(run, question, call.turn)
    _go_on_when_done(question)
    enqueue_run(run.pk)


def _predicted(run: Run, call: ToolCall, tool: Tool, result: JobResult) -> str:
    """Return what a kernel that was only built is expected to take, empty where nothing is known."""
    if tool.effort != Effort.BUILD or result.status != Status.CORRECT:
        return ""
    found = prediction_of_build(run, result.build, working_base_of(run, call.turn.call))
    return found.in_words(results.BASE) if found else ""


def do_cancel_tool_calls(run: Run) -> None:
    """Cancel the open tool calls of a run and ask their runners to stop. Call under the run's lock."""
    found = list(open_tool_calls(run).select_related("turn__call"))
    queue.cancel(Job.objects.filter(tool_call__in=found, state__in=OPEN_JOB_STATES))
    for call in found:
        do_cancel_tool_call(run, call)


def do_cancel_tool_call(run: Run, call: ToolCall) -> None:
    """Close a tool call whose job was cancelled. Call under the run's lock."""
    if ToolState(call.state).is_terminal:
        return
    call.mark_ended(ToolState.CANCELLED, "Cancelled.")
    _announce_end(run, call)


def _store_turn(call: LlmCall, new: NewTurn) -> CallTurn:
    outcome = {name: new.outcome.get(name) for name in PAID_COLUMNS}
    return CallTurn.objects.create(
        call=call,
        number=call.turns.count() + 1,
        text=cut_middle(storable_text(new.text), MAX_ARGUMENT_CHARACTERS),
        native=new.native,
        items=storable(list(new.items)),
        transport=storable(new.outcome.get("transport", {})),
        answered_by=new.answered_by,
        **outcome,
    )


@dataclass
class _Desk:
    """Hold what the tools of one turn need. `draft` is the kernel of the last call so far."""

    run: Run
    call: LlmCall
    turn: CallTurn
    toolbox: Toolbox
    spent: Spent
    draft: Draft | None


def _begin(desk: _Desk, requested: RequestedTool) -> None:
    """Store one tool call and answer it, leave it to `_start_waiting`, or refuse it with the reason."""
    row = _store_call(desk, requested)
    reason = used_up(desk.toolbox.limits, desk.spent)
    desk.spent = replace(desk.spent, calls=desk.spent.calls + 1)
    if reason:
        _keep_kernel(desk, row, requested)
        _refuse_for_limit(desk.run, row, reason)
        return
    tool = desk.toolbox.tools.get(requested.name)
    if tool is not None and tool.runs_kernels and (reason := device_used_up(desk.toolbox.limits, desk.spent)):
        _keep_kernel(desk, row, requested)
        _refuse_for_device(desk.run, row, reason)
        return
    try:
        _carry_out(desk, row, *_understood(desk, requested))
    except (_RefusedError, AnswerError) as error:
        _refuse(desk.run, row, str(error))
        return
    if ToolState(row.state).is_terminal:
        _announce_end(desk.run, row)


def _keep_kernel(desk: _Desk, row: ToolCall, requested: RequestedTool) -> None:
    """Take the kernel of a call that is refused: a submission that names none means this one."""
    with suppress(_RefusedError, AnswerError):
        _take_kernel(desk, row, _understood(desk, requested)[1])


def _store_call(desk: _Desk, requested: RequestedTool) -> ToolCall:
    row = ToolCall.objects.create(
        turn=desk.turn,
        run=desk.run,
        number=tool_calls_of(desk.call).count() + 1,
        reference=storable_text(requested.reference)[:200],
        name=storable_text(requested.name)[:40],
        arguments=storable(_kept(requested.arguments or {})),
        summary={"extra": storable(dict(requested.extra))} if requested.extra else {},
    )
    record(desk.run, _called(desk, row))
    return row


def _refuse_rest(desk: _Desk, rest: Sequence[RequestedTool]) -> None:
    """Tell the model which calls of an answer are too many. One row stands for them all, however many there are."""
    if not rest:
        return
    names = Counter(one.name if one.name in desk.toolbox.tools else "an unknown tool" for one in rest)
    named = ", ".join(f"{name} ({count})" for name, count in names.items())
    _refuse(
        desk.run,
        _store_call(desk, rest[0]),
        f"At most {MOST_PER_TURN} tool calls of one answer are carried out. These were not: {named}.",
    )


def _refuse(run: Run, row: ToolCall, reason: str) -> None:
    row.mark_ended(ToolState.REFUSED, reason, summary=row.summary | {"headline": reason[:200]})
    _announce_end(run, row)


def _refuse_for_limit(run: Run, row: ToolCall, reason: str) -> None:
    row.summary["limit"] = True
    _refuse(run, row, f"{reason} Submit a kernel now; anything else ends your work without one.")


def _refuse_for_device(run: Run, row: ToolCall, reason: str) -> None:
    _refuse(
        run, row, f"{reason} You can still use the tools that run no kernel: build what you have, then submit it."
    )


def _start_waiting(run: Run, call: LlmCall, turn: CallTurn) -> None:
    """Start the jobs of a turn's calls that wait: every build, and one at a time of those that take the device.

    Nobody knows how long a kernel takes. Started together, the calls of a turn would exceed the question's device time
    by what all but the first of them take.
    """
    toolbox = toolbox_of(call)
    is_held = turn.tool_calls.filter(state__in=OPEN_TOOL_STATES, job__spec__effort__in=_ON_DEVICE).exists()
    for row in turn.tool_calls.filter(state=ToolState.QUEUED, job=None).order_by("pk"):
        tool = toolbox.tools.get(row.name, TOOLS[row.name])
        if tool.runs_kernels:
            if is_held:
                continue
            if reason := device_used_up(toolbox.limits, spent_by(call)):
                _refuse_for_device(run, row, reason)
                continue
            is_held = True
        against = tool_calls_of(call).filter(number=row.summary.get(AGAINST)).last()
        row.job = queue_tool_job(run, call, row, tool, against)
        row.save(update_fields=["job"])


class _RefusedError(Exception):
    """Report why a tool call is not carried out, in words for the model."""


def _understood(desk: _Desk, requested: RequestedTool) -> tuple[Tool, Arguments]:
    """Return the tool and its arguments. Raises _RefusedError."""
    tool = desk.toolbox.tools.get(requested.name)
    if tool is None:
        raise _RefusedError(f"There is no such tool. There are: {', '.join(desk.toolbox.tools)}.")
    if requested.fault or requested.arguments is None:
        raise _RefusedError(requested.fault)
    try:
        return tool, tool.arguments.model_validate(dict(requested.arguments))
    except ValidationError as error:
        raise _RefusedError(describe_problems(error)) from error


def _carry_out(desk: _Desk, row: ToolCall, tool: Tool, arguments: Arguments) -> None:
    """Answer at once, or prepare the job. Raises AnswerError where it is unclear which kernel is meant."""
    _take_kernel(desk, row, arguments)
    if tool.effort is not None:
        opponent = _opponent(desk, arguments)
        row.summary |= {AGAINST: opponent.number} if opponent else {}
        row.save(update_fields=["source", "language", "summary"])
        return
    if tool.name == SUBMIT:
        raise _RefusedError(
            "Nothing was submitted: an earlier call of this answer names a kernel that cannot be read, so it is "
            "unclear which one you mean. Submit the complete file, or mend that call first."
        )
    history, knowledge = told_history_of(desk.run), knowledge_of(desk.run)
    text = answer(tool.name, arguments, history, knowledge, Delimiters(mark_of(desk.run)))
    row.mark_ended(ToolState.DONE, storable_text(text), summary=row.summary)


def _take_kernel(desk: _Desk, row: ToolCall, arguments: Arguments) -> None:
    """Store the kernel that a call is about, if it takes one. Raises AnswerError."""
    if isinstance(arguments, KernelArguments):
        desk.draft = draft_of(arguments, desk.draft, basis_of(desk.call), desk.toolbox.language)
        row.source, row.language = storable_text(desk.draft.text), desk.draft.language.value
        row.summary |= {ORIGINAL: True} if desk.draft.is_original_edited else {}


def _opponent(desk: _Desk, arguments: Arguments) -> ToolCall | None:
    """Return the earlier call whose kernel this one is timed against, None for the base. Raises _RefusedError."""
    if not isinstance(arguments, TimingArguments) or arguments.against == "base":
        return None
    timed = [name for name, tool in TOOLS.items() if tool.effort == Effort.QUICK]
    last = tool_calls_of(desk.call).filter(name__in=timed, summary__status=Status.CORRECT.value).last()
    if last is None:
        raise _RefusedError(
            "No kernel of yours has been timed and was correct yet: time this one against the base."
        )
    return last


def _name_of(number: int | None) -> str:
    return results.BASE if number is None else f"the kernel of call {number}"


def _go_on_when_done(call: LlmCall) -> None:
    """Ask the model again once every tool of its last turn has its result."""
    if call.state != CallState.TOOLS:
        return
    turn = turns_of(call).last()
    if turn is None or turn.tool_calls.filter(state__in=OPEN_TOOL_STATES).exists():
        return
    # A person keeps their claim on the prompt while the tools work for them.
    call.state = CallState.WAITING if turn.answered_by_id else CallState.QUEUED
    call.save(update_fields=["state"])
    if call.state == CallState.QUEUED:
        enqueue_call(call.pk)


def _kept(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for storage. Texts that are too long for any tool are cut."""
    return {
        str(name)[:60]: cut_middle(value, KEPT_OF_ARGUMENTS)
        if isinstance(value, str) and len(value) > MAX_ARGUMENT_CHARACTERS
        else value
        for name, value in list(arguments.items())[:20]
    }


def _called(desk: _Desk, row: ToolCall) -> ToolCalled:
    return ToolCalled(
        call=desk.call.pk,
        key=desk.call.key,
        role=desk.call.role,
        tool=row.name,
        order=row.number,
        spent_tokens=desk.run.spent_tokens,
        spent_usd=float(desk.run.spent_usd),
    )


def _announce_end(run: Run, row: ToolCall) -> None:
    call = row.turn.call
    ended = ToolEnded(
        call=call.pk,
        key=call.key,
        role=call.role,
        tool=row.name,
        order=row.number,
        state=row.state,
        headline=str(row.summary.get("headline", ""))[:300],
        spent_device_s=run.spent_device_s,
    )
    record(run, ended)

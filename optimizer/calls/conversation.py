"""Read the conversation of a question: which tools it has, what it has spent on them, and what is sent next.

A question is all attempts of one key. A further attempt (lost worker, repair) starts with the messages of the earlier
ones, so that the tools' results are not lost and the limits hold for all attempts together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum

from optimizer.agents.prompting import template
from optimizer.models import CallTurn, LlmCall, Run, ToolCall, ToolState
from optimizer.models.choices import OPEN_TOOL_STATES
from optimizer.runs.history import problem_of
from optimizer.runs.strategies import settings_of
from optimizer.search.base import History
from optimizer.search.machinery.proposals import target_language
from optimizer.search.machinery.tool_use import WriterSettings
from optimizer.tools.catalogue import SUBMIT, Tool, for_blocks, tools_for
from optimizer.tools.limits import Limits, Spent, device_used_up, left_in_words, used_up
from optimizer.tools.sources import Draft
from runners.job import Language


@dataclass(frozen=True)
class Toolbox:
    """Hold the tools of a question with their limits. `language` is that of new kernels."""

    tools: dict[str, Tool]
    limits: Limits
    language: Language


def toolbox_of(call: LlmCall) -> Toolbox:
    """Return the tools of a question; none where the run's setting, the role or the strategy has none."""
    settings = settings_of(call.run)
    language = writing_language(call.run)
    if not isinstance(settings, WriterSettings):
        return Toolbox({}, Limits(0, 0.0, 0), language)
    tools = tools_for(settings.tools, call.role, call.run.dispatcher, call.run.target.key, language)
    if call.answer_schema == "BlockAnswer":
        tools = for_blocks(tools)
    return Toolbox(tools, Limits(settings.tool_calls, settings.tool_device_s, settings.tool_tokens), language)


def offered(toolbox: Toolbox, spent: Spent) -> dict[str, Tool]:
    """Return the tools that may be called next.

    Without device time, these are the tools that run no kernel; when another limit is reached, only the submission.
    """
    if used_up(toolbox.limits, spent):
        return {name: tool for name, tool in toolbox.tools.items() if name == SUBMIT}
    if device_used_up(toolbox.limits, spent):
        return {name: tool for name, tool in toolbox.tools.items() if not tool.runs_kernels}
    return toolbox.tools


def tools_notice(toolbox: Toolbox) -> str:
    """Return what a prompt says about tools. It is the same for all questions of a run, so that it can be cached.

    It promises only what the tools that are offered can do.
    """
    checks = "check" in toolbox.tools
    questions = "whether your kernel builds" + (" and is right on the public test cases" if checks else "")
    return template("tools").format(
        questions=questions + (", and how fast it is" if "quick_time" in toolbox.tools else ""),
        limits=_limits_in_words(toolbox),
        advice="Build and check" if checks else "Build",
    )


def _limits_in_words(toolbox: Toolbox) -> str:
    calls = f"{toolbox.limits.calls} tool calls for this kernel"
    running = [tool for tool in toolbox.tools.values() if tool.runs_kernels]
    if not running:
        return calls
    where = "the interpreter" if all(tool.interpreted for tool in running) else "the device"
    return f"{calls}, and {toolbox.limits.device_s:g} seconds of {where}"


def writing_language(run: Run) -> Language:
    """Return the language in which the run's new kernels are written."""
    return target_language(History(problem_of(run), run.target.key, settings_of(run), run.seed))


def turns_of(call: LlmCall) -> QuerySet[CallTurn]:
    """Return the turns of the question up to this attempt, in order."""
    return CallTurn.objects.filter(
        call__run=call.run_id, call__key=call.key, call__attempt__lte=call.attempt
    ).order_by("pk")


def tool_calls_of(call: LlmCall) -> QuerySet[ToolCall]:
    """Return the tool calls of the question up to this attempt, in order."""
    return ToolCall.objects.filter(turn__in=turns_of(call)).order_by("pk")


def open_tool_calls(run: Run) -> QuerySet[ToolCall]:
    """Return the run's tool calls that have no result yet."""
    return ToolCall.objects.filter(run=run, state__in=OPEN_TOOL_STATES)


def spent_by(call: LlmCall) -> Spent:
    """Return what the question has spent on tools."""
    used = tool_calls_of(call).aggregate(
        calls=Count("pk", filter=~Q(state=ToolState.FAILED)),
        failures=Count("pk", filter=Q(state=ToolState.FAILED)),
        device_s=Sum("device_s", default=0.0),
    )
    tokens = turns_of(call).aggregate(
        prompt=Sum("prompt_tokens", default=0), answer=Sum("answer_tokens", default=0)
    )
    return Spent(used["calls"], used["device_s"], tokens["prompt"] + tokens["answer"], used["failures"])


def last_draft(call: LlmCall) -> Draft | None:
    """Return the kernel of the question's last call that had one."""
    found = tool_calls_of(call).exclude(source="").last()
    return Draft(found.source, Language(found.language)) if found else None


def messages_of(call: LlmCall) -> list[dict[str, Any]]:
    """Return the prompt and the turns of this attempt, which is what is sent next."""
    messages = [dict(message) for message in call.messages]
    mine = list(call.turns.prefetch_related("tool_calls").order_by("pk"))
    if not mine:
        return messages
    limits, spent = toolbox_of(call).limits, _spent_before(call)
    for turn in mine:
        # Each result states what was left at that time, so that the beginning of the conversation never changes.
        spent = _plus(spent, turn)
        messages += _messages(turn, left_in_words(limits, spent))
    return messages


def is_over(call: LlmCall, toolbox: Toolbox) -> str:
    """Return why a further turn with tool calls ends the question, or an empty text.

    The model learns once that a limit is reached, and may still submit then.
    """
    spent = spent_by(call)
    # A model that is cut off at the limit would lose what it found; told of it, it can submit.
    told = tool_calls_of(call).filter(state=ToolState.REFUSED, summary__limit=True).exists()
    return used_up(toolbox.limits, spent) if told else ""


def _spent_before(call: LlmCall) -> Spent:
    """Return what the earlier attempts have spent."""
    # Not saved: the queries only read its run, key and number, which stand for all attempts up to that one.
    return spent_by(LlmCall(run_id=call.run_id, key=call.key, attempt=call.attempt - 1))


def _plus(spent: Spent, turn: CallTurn) -> Spent:
    calls = list(turn.tool_calls.all())
    counted = [call for call in calls if call.state != ToolState.FAILED]
    return replace(
        spent,
        calls=spent.calls + len(counted),
        failures=spent.failures + len(calls) - len(counted),
        device_s=spent.device_s + sum(call.device_s for call in calls),
        tokens=spent.tokens + (turn.prompt_tokens or 0) + (turn.answer_tokens or 0),
    )


def _messages(turn: CallTurn, left: str) -> list[dict[str, Any]]:
    calls = list(turn.tool_calls.all())
    if turn.native:
        return [_assistant(turn, calls), *_results(calls, left)]
    said = "\n\n".join(_result(call) for call in calls)
    return [{"role": "assistant", "content": turn.text}, {"role": "user", "content": f"{said}\n\n{left}"}]


def _assistant(turn: CallTurn, calls: Iterable[ToolCall]) -> dict[str, Any]:
    made = [
        {
            "id": call.reference or f"call_{call.pk}",
            "name": call.name,
            "arguments": json.dumps(call.arguments, ensure_ascii=False),
            "extra": call.summary.get("extra", {}),
        }
        for call in calls
    ]
    return {"role": "assistant", "content": turn.text, "tool_calls": made, "items": turn.items}


def _results(calls: list[ToolCall], left: str) -> Iterable[dict[str, Any]]:
    for position, call in enumerate(calls, 1):
        content = f"{_result(call)}\n\n{left}" if position == len(calls) else _result(call)
        yield {
            "role": "tool",
            "tool_call_id": call.reference or f"call_{call.pk}",
            "name": call.name,
            "content": content,
        }


def _result(call: ToolCall) -> str:
    return f"Result of `{call.name}`, call {call.number}:\n\n{call.result_text or 'Not there yet.'}"

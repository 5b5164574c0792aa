"""Turn a stored question into the messages that are sent: built once, stored under the fencing token, then sent."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils.crypto import salted_hmac

from optimizer.agents.answer_base import Basis
from optimizer.agents.answers import json_schema_of
from optimizer.agents.delimiters import Delimiters, cut_middle
from optimizer.agents.knowledge import KnowledgeItem
from optimizer.agents.prompting import build_prompt
from optimizer.calls.choice import Parameters
from optimizer.calls.conversation import messages_of, offered, spent_by, toolbox_of, tools_notice, turns_of
from optimizer.llm.dialects import schema_instruction
from optimizer.llm.port import CompletionRequest
from optimizer.llm.tool_messages import text_messages
from optimizer.models import CallState, Finding, LlmCall, Provider, Run
from optimizer.queries.earlier_runs import of_the_same_kind
from optimizer.runs.history import findings_for, told_history_of
from optimizer.runs.locking import lock_run
from optimizer.runs.strategies import settings_of
from optimizer.search.base import Ask
from optimizer.text.storable import storable
from optimizer.tools.text_protocol import instruction

SHOWN_ANSWER_CHARACTERS = 60_000


def prepare(call: LlmCall) -> None:
    """Set the messages of a claimed call and store them before anything is sent.

    They are those of the previous attempt (with its fault named, if it had one), or a prompt built from the run as it
    is now.
    """
    # A repeated question keeps its prompt: a new one could differ and make the attempts incomparable.
    earlier = _attempt_before(call)
    if earlier is not None and earlier.messages:
        call.messages = [*messages_of(earlier), *_repair(earlier)]
        call.prompt_version, call.context_report = earlier.prompt_version, earlier.context_report
        call.transport = {name: earlier.transport[name] for name in _BASIS if name in earlier.transport}
    elif not call.messages:
        _build(call)
    _store(call)


def request_of(call: LlmCall, row: Provider | None) -> CompletionRequest:
    """Return the request for the provider."""
    chosen = Parameters.model_validate(call.parameters)
    toolbox = toolbox_of(call)
    tools = [tool.spec() for tool in offered(toolbox, spent_by(call)).values()] if toolbox.tools else []
    return CompletionRequest(
        messages=messages_of(call),
        model=call.model or (row.default_model if row else ""),
        temperature=chosen.temperature,
        effort=chosen.effort,
        max_tokens=chosen.max_tokens,
        schema=json_schema_of(call.answer_schema),
        schema_name=call.answer_schema or "answer",
        api=row.api if row else "chat",
        timeout_s=row.timeout_s if row else 600.0,
        key=call.key,
        role=call.role,
        attempt=call.attempt,
        turn=turns_of(call).count(),
        tools=tools,
        tools_in_text=instruction(tools) if tools else "",
    )


def basis_of(call: LlmCall) -> Basis | None:
    """Return the kernel to which the answer's edits refer, as it was in the prompt, or None."""
    text = call.transport.get("edit_base")
    return Basis(text, call.transport["edit_language"]) if text else None


def prompt_text(call: LlmCall) -> str:
    """Return the whole prompt as one text for a person who answers it: each message under its role, then the schema."""
    messages = text_messages(messages_of(call))
    parts = [f"## {message['role']}\n\n{message['content']}" for message in messages]
    if tools := toolbox_of(call).tools:
        parts.append(instruction([tool.spec() for tool in tools.values()]))
    schema = json_schema_of(call.answer_schema)
    return "\n\n".join([*parts, schema_instruction(schema)] if schema else parts)


_BASIS = ("edit_base", "edit_language")


def _build(call: LlmCall) -> None:
    # Read history and knowledge under the run's lock, so that the prompt shows one consistent state.
    with transaction.atomic():
        run = lock_run(call.run_id)
        history = told_history_of(run)
        knowledge = knowledge_of(run)
    ask = Ask(call.key, call.role, call.context, call.answer_schema)
    prompt = build_prompt(ask, history, knowledge, delimiters=Delimiters(mark_of(run)))
    call.messages = storable(prompt.messages)
    call.prompt_version = prompt.version[:80]
    _mention_tools(call)
    call.context_report = storable(prompt.report)
    if prompt.edit_base:
        call.transport = {"edit_base": storable(prompt.edit_base), "edit_language": prompt.edit_language}


def mark_of(run: Run) -> str:
    """Return the mark of the delimiters in all prompts of a run.

    It is the same in every prompt, so that servers recognise how they begin, and cannot be guessed without the
    installation's secret key.
    """
    return salted_hmac("optimizer.prompt-delimiters", str(run.pk)).hexdigest()[:16]


def _mention_tools(call: LlmCall) -> None:
    """Say in the prompt that there are tools, and how much of them."""
    toolbox = toolbox_of(call)
    if toolbox.tools:
        notice = tools_notice(toolbox)
        call.messages[0]["content"] += f"\n\n{notice}"
        call.prompt_version = f"{call.prompt_version}+tools"[:80]


def knowledge_of(run: Run) -> list[KnowledgeItem]:
    """Return all current findings that apply to the run, oldest first, after a kernel of a related problem.

    A finding that the run wrote under a digest's name is a digest; otherwise the narrowest scope counts.
    """
    findings = [
        KnowledgeItem(f"finding-{row.pk}", _scope(row), row.title, row.text, row.origin)
        for row in findings_for(run)
    ]
    return [*_relative(run), *findings]


def _relative(run: Run) -> list[KnowledgeItem]:
    """Return the best kernel of another problem with the same kind of work; none without a warm start."""
    found = of_the_same_kind(run) if settings_of(run).warm_start else None
    if found is None or found.best_kernel is None:
        return []
    problem, kernel = found.problem_version.problem, found.best_kernel
    title = f"Kernel of another problem: {problem.title}, #{kernel.number} of run {found.pk}"
    speed = f"{found.best_speedup:.2f}× against {found.baseline} on this target, in {kernel.language}."
    return [KnowledgeItem(f"kernel-{kernel.pk}", "kernel", title, f"{speed}\n\n{kernel.source}")]


def _scope(row: Finding) -> str:
    if row.kind in {"digest", "guidance", "hardware"}:
        return row.kind
    if row.run_id is not None:
        return "run"
    return "problem" if row.problem_id is not None else "target"


def _attempt_before(call: LlmCall) -> LlmCall | None:
    return (
        LlmCall.objects.filter(run=call.run_id, key=call.key, attempt__lt=call.attempt).order_by("attempt").last()
    )


def _repair(earlier: LlmCall) -> list[dict[str, str]]:
    """Return the messages that ask for a repair: the unusable answer, and its fault in words."""
    if not earlier.transport.get("fault"):
        return []
    schema = json_schema_of(earlier.answer_schema)
    wanted = f"\n\n{schema_instruction(schema)}" if schema else ""
    request = f"Your answer cannot be used. {earlier.error}\n\nAnswer again, completely.{wanted}"
    said = cut_middle(earlier.answer_text, SHOWN_ANSWER_CHARACTERS)
    answered = [{"role": "assistant", "content": said}] if said.strip() else []
    return [*answered, {"role": "user", "content": request}]


def _store(call: LlmCall) -> None:
    """Store the prompt, provided that the claim still holds."""
    changes: dict[str, Any] = {
        name: getattr(call, name) for name in ("messages", "prompt_version", "context_report", "transport")
    }
    LlmCall.objects.filter(pk=call.pk, fence=call.fence, state=CallState.ASKING).update(**changes)

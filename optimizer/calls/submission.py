"""Read an answer: which tools it calls, and whether it submits a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from optimizer.agents.code_blocks import AnswerError, without_thoughts
from optimizer.calls.conversation import last_draft, toolbox_of
from optimizer.calls.prepare import basis_of
from optimizer.llm.port import Completion, RequestedTool
from optimizer.models import LlmCall
from optimizer.tools.catalogue import SUBMIT, SubmitArguments
from optimizer.tools.sources import answer_text, draft_of
from optimizer.tools.text_protocol import parse_calls

# Schema of every submission: the tool call names the whole kernel, whatever the answers of its role look like.
SUBMITTED = "KernelAnswer"
# Endings of an answer that cannot be trusted to be complete.
_CUT = frozenset({"length", "too_long", "refusal", "filter"})


def requested_tools(completion: Completion) -> Sequence[RequestedTool]:
    """Return the tool calls of a complete answer: through the provider's API, else in text."""
    if completion.finish in _CUT:
        return []
    return completion.tool_calls or parse_calls(without_thoughts(completion.text))


def submission_in(call: LlmCall, requested: Sequence[RequestedTool]) -> str:
    """Return the submission among the tool calls as an answer in text, or an empty text where there is none.

    The first one that names a kernel counts, and no other call of the answer is carried out.
    """
    for one in requested:
        if one.name == SUBMIT and one.arguments is not None and not one.fault:
            try:
                return _submitted(call, dict(one.arguments))
            # The fault goes back to the model as the result of its call.
            except (ValidationError, AnswerError):
                continue
    return ""


def _submitted(call: LlmCall, given: dict[str, Any]) -> str:
    toolbox = toolbox_of(call)
    arguments = toolbox.tools[SUBMIT].arguments.model_validate(given)
    if not isinstance(arguments, SubmitArguments):
        raise TypeError(f"{SUBMIT} takes {type(arguments).__name__}")
    draft = draft_of(arguments, last_draft(call), basis_of(call), toolbox.language)
    return answer_text(draft, arguments)

"""Read an answer: which tools it calls, and whether it submits a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from optimizer.agents.code_blocks import AnswerError, Fault, without_thoughts
from optimizer.calls.conversation import Toolbox, last_draft, toolbox_of
from optimizer.calls.prepare import basis_of
from optimizer.llm.port import Completion, RequestedTool
from optimizer.models import LlmCall
from optimizer.tools.catalogue import KernelArguments, SubmitArguments
from optimizer.tools.sources import answer_text, draft_of, stands_alone
from optimizer.tools.text_protocol import parse_calls

# Schema of every submission: the tool call names the whole kernel, whatever the answers of its role look like.
SUBMITTED = "KernelAnswer"
# A hostile answer may have tens of thousands of calls, and each may edit a long kernel.
MOST_READ = 64
# Endings of an answer that cannot be trusted to be complete.
_CUT = frozenset({"length", "too_long", "refusal", "filter"})


def requested_tools(completion: Completion) -> Sequence[RequestedTool]:
    """Return the tool calls of a complete answer: through the provider's API, else in text."""
    if completion.finish in _CUT:
        return []
    return completion.tool_calls or parse_calls(without_thoughts(completion.text))


def submission_in(call: LlmCall, requested: Sequence[RequestedTool]) -> str:
    """Return the submission among the tool calls as an answer in text, or an empty text where there is none.

    The first one that names a kernel counts, and no other call of the answer is carried out. A call takes the kernel
    of the call before it also where both are in one answer.
    """
    toolbox, basis, draft, is_clear = toolbox_of(call), basis_of(call), last_draft(call), True
    for one in requested[:MOST_READ]:
        try:
            arguments = _kernel_arguments(toolbox, one)
            # The wrong kernel would end the question, so that nothing stands in for one that cannot be read.
            if arguments is None or not (is_clear or stands_alone(arguments)):
                continue
            draft, is_clear = draft_of(arguments, draft, basis, toolbox.language), True
        # The fault goes back to the model as the result of its call.
        except (ValidationError, AnswerError):
            is_clear = False
            continue
        if isinstance(arguments, SubmitArguments):
            return answer_text(draft, arguments)
    return ""


def _kernel_arguments(toolbox: Toolbox, one: RequestedTool) -> KernelArguments | None:
    """Return the arguments of a call that takes a kernel, None for others. Raises ValidationError or AnswerError."""
    tool = toolbox.tools.get(one.name)
    if tool is None or not issubclass(tool.arguments, KernelArguments):
        return None
    if one.arguments is None or one.fault:
        raise AnswerError(Fault.WRONG_SHAPE, one.fault)
    return tool.arguments.model_validate(dict(one.arguments))

"""Serve prompts to people and outside agents: list, read, claim, answer."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema, Status

from optimizer.actions.inbox import (
    PromptClosedError,
    PromptTakenError,
    access_prompt,
    do_answer_prompt,
    do_claim_prompt,
    do_release_prompt,
    holder_of,
    tag,
    waiting_prompts,
)
from optimizer.agents.answers import MAX_ANSWER_BYTES, json_schema_of
from optimizer.agents.code_blocks import AnswerError
from optimizer.api.auth import caller, needs
from optimizer.calls.conversation import messages_of, toolbox_of
from optimizer.calls.prepare import prompt_text
from optimizer.llm.tool_messages import call_in_text, text_messages
from optimizer.models import CallState, LlmCall, TokenScope

router = Router(tags=["inbox"], auth=needs(TokenScope.INBOX))
PAGE = 100


class ToolOut(Schema):
    """Describe a tool that may be called instead of answering, with the JSON schema of its arguments."""

    name: str
    description: str
    arguments: dict[str, Any]


class PromptLine(Schema):
    """Describe a waiting prompt. `claimed` is mine, theirs or nobody."""

    id: int
    run: int
    run_title: str
    key: str
    role: str
    attempt: int
    answer_schema: str
    created_at: dt.datetime
    claimed: str
    claimed_until: dt.datetime | None


class Prompt(PromptLine):
    """Describe a prompt completely, as messages and as one text for people.

    `expected_json` is the schema of the answer, or null where it is prose with code.
    """

    state: str
    text: str
    messages: list[dict[str, Any]]
    expected_json: dict[str, Any] | None
    tools: list[ToolOut]
    refused: list[dict[str, Any]]


class ToolCallIn(Schema):
    """Hold a call of a tool, as an alternative to writing it into the text."""

    name: str = Field(pattern=r"^[\w-]{1,40}$")
    arguments: dict[str, str | int | float | bool] = {}


class AnswerIn(Schema):
    """Hold an answer, or calls of tools. `model` names what wrote it, if it was not a person."""

    text: str = Field(default="", max_length=MAX_ANSWER_BYTES * 2)
    model: str = Field(default="", max_length=120)
    tool_calls: list[ToolCallIn] = Field(default=[], max_length=8)

    @property
    def whole(self) -> str:
        """Return text and tool calls as one text."""
        calls = [{"name": call.name, "arguments": json.dumps(call.arguments)} for call in self.tool_calls]
        return "\n\n".join(part for part in (self.text, *map(call_in_text, calls)) if part)


class Answered(Schema):
    """Describe the answer as it was parsed. It is null while tools work for it; the prompt then waits again."""

    id: int
    state: str
    answer: dict[str, Any] | None


class Refused(Schema):
    """Explain why an answer cannot be used: a short name, and a message for its author."""

    fault: str
    errors: list[str]


class Problem(Schema):
    """Explain why nothing was done."""

    detail: str


@router.get("", response=list[PromptLine])
def list_prompts(request: HttpRequest, run: int | None = None, after: int = 0) -> list[PromptLine]:
    """List waiting prompts, oldest first, at most 100; continue with `after` set to the last id."""
    waiting = waiting_prompts(caller(request)).filter(pk__gt=after)
    # No check of access to the run is needed: `waiting_prompts` contains only what the caller may answer.
    chosen = waiting if run is None else waiting.filter(run_id=run)
    return [PromptLine(**_line(request, call)) for call in chosen[:PAGE]]


@router.get("/{int:call_id}", response=Prompt)
def read_prompt(request: HttpRequest, call_id: int) -> Prompt:
    """Return one prompt completely."""
    return _whole(request, access_prompt(caller(request), call_id))


@router.post("/{int:call_id}/claim", response={200: Prompt, 409: Problem})
def claim_prompt(request: HttpRequest, call_id: int) -> Any:
    """Claim a prompt for half an hour, or extend one's own claim."""
    try:
        return _whole(request, do_claim_prompt(caller(request), access_prompt(caller(request), call_id)))
    except (PromptTakenError, PromptClosedError) as error:
        return Status(409, Problem(detail=_WHY[type(error)]))


@router.post("/{int:call_id}/release", response={204: None})
def release_prompt(request: HttpRequest, call_id: int) -> Any:
    """Release one's claim."""
    do_release_prompt(caller(request), access_prompt(caller(request), call_id))
    return Status(204, None)


@router.post("/{int:call_id}/answer", response={200: Answered, 409: Problem, 422: Refused})
def answer_prompt(request: HttpRequest, call_id: int, body: AnswerIn) -> Any:
    """Answer a prompt, or call tools. 422 describes what is wrong with the answer; the prompt keeps waiting.

    After calls of tools the prompt waits again when they have answered, with their results in `messages` and `text`.
    """
    call = access_prompt(caller(request), call_id)
    try:
        answer = do_answer_prompt(caller(request), call, body.whole, body.model)
    except AnswerError as error:
        # A refused answer is not an error of the server: the fault is recorded and the prompt stays open.
        return Status(422, Refused(fault=error.fault.value, errors=[str(error)]))
    except (PromptTakenError, PromptClosedError) as error:
        return Status(409, Problem(detail=_WHY[type(error)]))
    if answer is None:
        return Answered(id=call.pk, state=CallState.TOOLS, answer=None)
    return Answered(id=call.pk, state=CallState.ANSWERED, answer=answer.model_dump(mode="json"))


_WHY = {
    PromptTakenError: "someone else has claimed this prompt",
    PromptClosedError: "this prompt is closed",
}


def _line(request: HttpRequest, call: LlmCall) -> dict[str, Any]:
    # The holder's name stays private; the caller learns only whether it is somebody else.
    holder = holder_of(call)
    claimed = "nobody" if not holder else "mine" if holder == tag(caller(request)) else "theirs"
    return {
        "id": call.pk,
        "run": call.run_id,
        "run_title": str(call.run),
        "key": call.key,
        "role": call.role,
        "attempt": call.attempt,
        "answer_schema": call.answer_schema,
        "created_at": call.created_at,
        "claimed": claimed,
        "claimed_until": call.lease_until if holder else None,
    }


def _whole(request: HttpRequest, call: LlmCall) -> Prompt:
    return Prompt(
        **_line(request, call),
        state=call.state,
        text=prompt_text(call),
        messages=text_messages(messages_of(call)),
        tools=[
            ToolOut(name=tool.name, description=tool.description, arguments=tool.schema)
            for tool in toolbox_of(call).tools.values()
        ],
        expected_json=json_schema_of(call.answer_schema),
        refused=call.transport.get("refused", []),
    )

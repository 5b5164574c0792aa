"""Speak the two dialects of OpenAI-compatible servers: Chat Completions and Responses.

A dialect turns a request into the server's parameters and reads the answer, streamed or whole, into a `PartialAnswer`.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from optimizer.llm.port import MAX_ANSWER_CHARACTERS, CompletionRequest, Message, Usage
from optimizer.llm.tool_messages import (
    StreamedCalls,
    chat_messages,
    chat_tools,
    responses_input,
    responses_tools,
    text_messages,
)

if TYPE_CHECKING:  # pages show schemas in words without loading the SDK
    from openai import AsyncOpenAI


@dataclass
class PartialAnswer:
    """Collect an answer while it arrives.

    `finish` stays empty until the server says how the answer ended. An answer beyond the maximum length is cut; the
    arguments of tool calls count as part of it. `items` are opaque parts that the server wants back.
    """

    emit: Callable[[str], None]
    started: float = field(default_factory=time.monotonic)
    refusal: str = ""
    finish: str = ""
    model: str = ""
    request_id: str = ""
    usage: Usage = field(default_factory=Usage)
    first_token_s: float | None = None
    tools: StreamedCalls = field(default_factory=StreamedCalls)
    items: list[dict[str, Any]] = field(default_factory=list)
    _parts: list[str] = field(default_factory=list)
    _length: int = 0

    def add(self, piece: str | None) -> bool:
        """Append a piece. Return False when the answer is too long to continue."""
        return self._take(piece or "", self._parts)

    def add_tool(self, index: int | None, reference: str, name: str, arguments: str, extra: Any = None) -> bool:
        """Append a piece of a tool call. Return False when the answer is too long to continue."""
        call = self.tools.call_for(index, reference, name)
        if name and not call.name:
            self.emit(f"\n→ {name[:40]} ")
        call.reference, call.name = call.reference or reference[:200], call.name or name[:40]
        call.extra |= extra if isinstance(extra, dict) else {}
        return self._take(arguments, call.arguments)

    def _take(self, piece: str, parts: list[str]) -> bool:
        if not piece:
            return True
        if self.first_token_s is None:
            self.first_token_s = time.monotonic() - self.started
        room = MAX_ANSWER_CHARACTERS - self._length
        parts.append(piece[:room])
        self._length += min(len(piece), room)
        self.emit(piece[:room])
        if len(piece) >= room:
            # A hostile or broken server could stream forever.
            self.finish = "too_long"
        return len(piece) < room

    @property
    def content(self) -> str:
        """Return the text that has arrived so far."""
        return "".join(self._parts)


class Dialect(ABC):
    """Define how one API is spoken.

    `optional` lists the parameters that a request can do without, most dispensable first, each with the words by
    which servers name it when they refuse it.
    """

    optional: ClassVar[Mapping[str, tuple[str, ...]]]

    @abstractmethod
    def parameters(self, request: CompletionRequest, without: frozenset[str]) -> dict[str, Any]:
        """Return the keyword arguments of the call, without those in `without`."""

    @abstractmethod
    async def ask(self, client: AsyncOpenAI, parameters: dict[str, Any], partial: PartialAnswer) -> None:
        """Send the request and read the answer into `partial`."""


class ChatDialect(Dialect):
    """Speak POST /chat/completions, which every compatible server offers."""

    optional = {
        "stream_options": ("stream_options", "include_usage"),
        "temperature": ("temperature",),
        "reasoning_effort": ("reasoning_effort", "reasoning effort"),
        "max_completion_tokens": ("max_completion_tokens",),
        "response_format": ("response_format", "json_schema", "structured", "guided", "grammar"),
        "tools": ("tools", "tool_choice", "tool call", "tool use", "function call"),
        "stream": ("stream",),
    }

    def parameters(self, request: CompletionRequest, without: frozenset[str]) -> dict[str, Any]:
        """Return the keyword arguments of the call; older servers know `max_tokens`, newer ones
        `max_completion_tokens`.
        """
        limit = "max_tokens" if "max_completion_tokens" in without else "max_completion_tokens"
        wanted = {
            "temperature": request.temperature,
            "reasoning_effort": request.effort,
            limit: request.max_tokens,
            "response_format": request.schema and _chat_format(request),
            "tools": chat_tools(request.tools) or None,
            "stream": True,
            "stream_options": None if "stream" in without else {"include_usage": True},
        }
        messages = chat_messages(_messages(request, without))
        return {"model": request.model, "messages": messages} | _present(wanted, without)

    async def ask(self, client: AsyncOpenAI, parameters: dict[str, Any], partial: PartialAnswer) -> None:
        """Send the request and read the answer into `partial`."""
        answer: Any = await client.chat.completions.create(**parameters)
        if not parameters.get("stream"):
            self._take(_answering(answer, "choices"), partial, whole=True)
            return
        async with answer:
            async for chunk in answer:
                if not self._take(chunk, partial, whole=False):
                    return

    def _take(self, chunk: Any, partial: PartialAnswer, *, whole: bool) -> bool:
        """Read one chunk, or a whole completion. Return False to stop reading. Servers omit fields at will."""
        partial.model = _text(getattr(chunk, "model", None)) or partial.model
        partial.request_id = _text(getattr(chunk, "id", None)) or partial.request_id
        if getattr(chunk, "usage", None):
            partial.usage = _chat_usage(chunk.usage)
        # Some servers send chunks without choices, for example with the usage only.
        going = True
        for choice in (getattr(chunk, "choices", None) or [])[:1]:
            piece = getattr(choice, "message" if whole else "delta", None)
            partial.refusal += _text(getattr(piece, "refusal", None))
            going = partial.add(_text(getattr(piece, "content", None)))
            for call in getattr(piece, "tool_calls", None) or []:
                going = _add_chat_call(partial, call) and going
            partial.finish = partial.finish or _CHAT_FINISH.get(
                _text(getattr(choice, "finish_reason", None)).lower(), ""
            )
        return going


class ResponsesDialect(Dialect):
    """Speak POST /responses. Nothing is stored on the server (`store` is false)."""

    optional = {
        "temperature": ("temperature",),
        "reasoning": ("reasoning",),
        "include": ("include", "encrypted_content"),
        "store": ("store",),
        "max_output_tokens": ("max_output_tokens",),
        "text": ("text.format", "json_schema", "structured"),
        "tools": ("tools", "tool_choice", "tool call", "tool use", "function call"),
        "stream": ("stream",),
    }

    def parameters(self, request: CompletionRequest, without: frozenset[str]) -> dict[str, Any]:
        """Return the keyword arguments of the call."""
        wanted = {
            "temperature": request.temperature,
            "reasoning": request.effort and {"effort": request.effort},
            "max_output_tokens": request.max_tokens,
            "text": request.schema and {"format": {"type": "json_schema", **_named_schema(request)}},
            "tools": responses_tools(request.tools) or None,
            # Nothing is stored there, so the model's reasoning must travel with the conversation.
            "include": ["reasoning.encrypted_content"] if request.tools else None,
            "stream": True,
            "store": False,
        }
        messages = responses_input(_messages(request, without))
        return {"model": request.model, "input": messages} | _present(wanted, without)

    async def ask(self, client: AsyncOpenAI, parameters: dict[str, Any], partial: PartialAnswer) -> None:
        """Send the request and read the answer into `partial`."""
        answer: Any = await client.responses.create(**parameters)
        if not parameters.get("stream"):
            partial.add(_answering(answer, "output").output_text)
            for item in answer.output:
                self._add_item(item, partial)
            self._end(answer, partial)
            return
        async with answer:
            async for event in answer:
                if not self._take(event, partial):
                    return

    def _take(self, event: Any, partial: PartialAnswer) -> bool:
        kind = _text(getattr(event, "type", None))
        if kind == "response.output_text.delta":
            return partial.add(_text(event.delta))
        if kind == "response.refusal.delta":
            partial.refusal += _text(event.delta)
        elif kind == "response.output_item.done":
            return self._add_item(event.item, partial)
        elif kind in {"response.completed", "response.incomplete", "response.failed"}:
            self._end(event.response, partial)
        elif kind == "error":
            raise ServerReportedError(_text(event.message) or "the server reported an error without words")
        return True

    def _add_item(self, item: Any, partial: PartialAnswer) -> bool:
        """Take a tool call, or the encrypted reasoning that has to be sent back with its result."""
        kind = _text(getattr(item, "type", None))
        if kind == "function_call":
            return partial.add_tool(None, _text(item.call_id), _text(item.name), _text(item.arguments))
        if kind == "reasoning" and _text(getattr(item, "encrypted_content", None)):
            partial.items.append({"type": "reasoning", "summary": [], "encrypted_content": item.encrypted_content})
        return True

    def _end(self, response: Any, partial: PartialAnswer) -> None:
        """Copy from a finished response how it ended and what it cost."""
        partial.model, partial.request_id = _text(response.model), _text(response.id)
        partial.usage = _responses_usage(response.usage) if response.usage else partial.usage
        reason = response.incomplete_details.reason if response.incomplete_details else ""
        ends = {"max_output_tokens": "length", "content_filter": "filter"}
        if response.status == "failed":
            raise ServerReportedError(response.error.message if response.error else "the response failed")
        partial.finish = partial.finish or ends.get(reason or "", "stop" if response.status == "completed" else "")


class ServerReportedError(Exception):
    """Report that the server announced a failure in the middle of an answer."""


class NotThisApiError(Exception):
    """Report that the response is no answer of this API; usually the address is another page of the same host."""


DIALECTS: Mapping[str, Dialect] = {"chat": ChatDialect(), "responses": ResponsesDialect()}

_CHAT_FINISH = {
    "stop": "stop",
    "length": "length",
    "content_filter": "filter",
    "tool_calls": "stop",
    "function_call": "stop",
    "eos": "stop",
    "eos_token": "stop",  # Hugging Face's server
    "stop_sequence": "stop",  # the same; Anthropic's own word
    "end_turn": "stop",  # Anthropic's own words, which gateways pass on
    "max_tokens": "length",
    "model_length": "length",  # Mistral
}


def _answering(answer: Any, part: str) -> Any:
    """Return a whole answer that has its `part`.

    Raises ServerReportedError for an error that came with a success status (gateways do that), and NotThisApiError
    for anything else.
    """
    reported = getattr(answer, "error", None)
    if reported:
        words = reported.get("message") if isinstance(reported, dict) else getattr(reported, "message", reported)
        raise ServerReportedError(str(words or "the server reported an error without words"))
    # The SDK returns plain text for an HTML page with status 200.
    if not isinstance(getattr(answer, part, None), list):
        began = f"; it began: {answer[:80].strip()!r}" if isinstance(answer, str) else ""
        raise NotThisApiError(
            f"the server's response does not match this API: check the address, which often ends in /v1{began}"
        )
    return answer


def _text(value: Any) -> str:
    """Return a text as it came, or the joined text parts of a list (reasoning models of some servers), else ""."""
    if isinstance(value, list):
        parts = (part.get("text") if isinstance(part, dict) else None for part in value)
        return "".join(part for part in parts if isinstance(part, str))
    return value if isinstance(value, str) else ""


def schema_instruction(schema: Mapping[str, Any]) -> str:
    """Return the paragraph that describes the schema where a server or person gets it in words only."""
    return (
        "Answer with one JSON object and nothing else. It must fit this JSON schema:\n"
        f"```json\n{json.dumps(schema, indent=1, ensure_ascii=False)}\n```"
    )


def _messages(request: CompletionRequest, without: frozenset[str]) -> list[Message]:
    """Return the prompt, with the schema in words where the server does not take it as a parameter."""
    messages = [dict(message) for message in request.messages]
    if "tools" in without:
        messages = text_messages(messages)
        if request.tools:
            messages[0]["content"] += "\n\n" + request.tools_in_text
    if request.schema and {"response_format", "text"} & without:
        # At the end, next to where the answer begins.
        messages[-1]["content"] += "\n\n" + schema_instruction(request.schema)
    return list(messages)


def _add_chat_call(partial: PartialAnswer, call: Any) -> bool:
    """Take a piece of a tool call, or a whole one. `extra_content` has to be sent back (Gemini's signatures)."""
    function = getattr(call, "function", None)
    index, arguments = getattr(call, "index", None), getattr(function, "arguments", None)
    return partial.add_tool(
        index if isinstance(index, int) else None,
        _text(getattr(call, "id", None)),
        _text(getattr(function, "name", None)),
        # Some servers send the arguments as an object instead of text.
        json.dumps(arguments) if isinstance(arguments, dict) else _text(arguments),
        {"extra_content": extra} if (extra := getattr(call, "extra_content", None)) else None,
    )


def _present(wanted: Mapping[str, Any], without: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in wanted.items() if value is not None and name not in without}


def _named_schema(request: CompletionRequest) -> dict[str, Any]:
    return {"name": request.schema_name, "schema": request.schema, "strict": True}


def _chat_format(request: CompletionRequest) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": _named_schema(request)}


def _chat_usage(usage: Any) -> Usage:
    details = getattr(usage, "prompt_tokens_details", None)
    answer = getattr(usage, "completion_tokens_details", None)
    return Usage(
        prompt=_count(usage, "prompt_tokens"),
        answer=_count(usage, "completion_tokens"),
        cached=_count(details, "cached_tokens"),
        reasoning=_count(answer, "reasoning_tokens"),
    )


def _responses_usage(usage: Any) -> Usage:
    return Usage(
        prompt=_count(usage, "input_tokens"),
        answer=_count(usage, "output_tokens"),
        cached=_count(getattr(usage, "input_tokens_details", None), "cached_tokens"),
        reasoning=_count(getattr(usage, "output_tokens_details", None), "reasoning_tokens"),
    )


def _count(source: Any, name: str) -> int | None:
    """Return a token count as the server gave it if it is plausible, else None."""
    value = getattr(source, name, None)
    return value if isinstance(value, int) and 0 <= value < 2**31 else None

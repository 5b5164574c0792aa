"""Translate tool calls between our messages and those of the two APIs, and into text for servers without tools.

In our messages an assistant's message has `tool_calls`, a list of {id, name, arguments, extra} with the arguments as
JSON text, and each result is a message of the role `tool` with `tool_call_id` and `name`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optimizer.llm.port import Message, RequestedTool, ToolSpec
from optimizer.text.markdown import fenced


@dataclass
class StreamedCall:
    """Collect one tool call while it arrives."""

    index: int | None
    reference: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    def finished(self) -> RequestedTool:
        """Return the call with its arguments parsed."""
        text = "".join(self.arguments)
        arguments, fault = parse_arguments(text)
        return RequestedTool(self.name, arguments, self.reference, fault, self.extra)


class StreamedCalls:
    """Collect the tool calls of an answer.

    Servers disagree on how pieces name their call: by index, by id, or not at all because each piece is a whole call.
    """

    def __init__(self) -> None:
        self.calls: list[StreamedCall] = []

    def call_for(self, index: int | None, reference: str, name: str) -> StreamedCall:
        """Return the call to which a piece belongs; a new one where the piece begins it."""
        for call in reversed(self.calls):
            same_place = index is None or call.index is None or call.index == index
            # Some servers send every call under index 0, or under none, each with an id and a name of its own.
            begins = bool(name) and bool(call.name) and (reference != call.reference or not reference)
            if same_place and not begins:
                return call
        self.calls.append(StreamedCall(index))
        return self.calls[-1]

    def finished(self) -> tuple[RequestedTool, ...]:
        """Return the calls in order, each with an id."""
        return tuple(call.finished() for call in self.calls if call.name)


def parse_arguments(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return the JSON object in `text`, or None with the reason why there is none."""
    try:
        found = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        return None, f"The arguments are not JSON: {str(error)[:200]}"
    return (found, "") if isinstance(found, dict) else (None, "The arguments are not a JSON object.")


def chat_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return the tools as Chat Completions describes them."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.schema)},
        }
        for tool in tools
    ]


def responses_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return the tools as Responses describes them. Strict mode would refuse optional arguments."""
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.schema),
            "strict": False,
        }
        for tool in tools
    ]


def chat_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return messages as Chat Completions takes them."""
    return [_chat_message(message) for message in messages]


def responses_input(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return messages as the input items of Responses."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            result = {"type": "function_call_output", "call_id": message["tool_call_id"]}
            found.append(result | {"output": message["content"]})
            continue
        # Reasoning precedes the calls that it led to.
        found += [dict(item) for item in message.get("items", ())]
        if message["content"] or not message.get("tool_calls"):
            found.append({"role": message["role"], "content": message["content"]})
        found += [_function_call(call) for call in message.get("tool_calls", ())]
    return found


def text_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return messages without tool calls: calls become text, and results a message of the user."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] != "tool":
            parts = [message["content"], *map(call_in_text, message.get("tool_calls", ()))]
            found.append({"role": message["role"], "content": "\n\n".join(part for part in parts if part)})
        elif found and found[-1].get("is_result"):
            found[-1]["content"] += "\n\n" + message["content"]
        else:
            found.append({"role": "user", "content": message["content"], "is_result": True})
    return [{"role": message["role"], "content": message["content"]} for message in found]


def call_in_text(call: Mapping[str, Any]) -> str:
    """Return a tool call as the text protocol writes it."""
    arguments, _ = parse_arguments(call["arguments"])
    given = {name: value for name, value in (arguments or {}).items() if value not in (None, "")}
    source, blocks, edits = (given.pop(name, "") for name in ("source", "blocks", "edits"))
    code = [source] if source else blocks if isinstance(blocks, list) else []
    lines = [f"TOOL: {call['name']}"]
    lines += [f"{name}: {' '.join(str(value).split())}" for name, value in given.items()]
    return "\n".join([*lines, *([fenced(str(part)) for part in code] or [str(edits)])]).rstrip()


def _chat_message(message: Message) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "tool", "tool_call_id": message["tool_call_id"], "content": message["content"]}
    plain = {"role": message["role"], "content": message["content"]}
    if not message.get("tool_calls"):
        return plain
    return plain | {
        "content": message["content"] or None,
        "tool_calls": list(map(_chat_call, message["tool_calls"])),
    }


def _chat_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": call["arguments"]}
    return {"id": call["id"], "type": "function", "function": function, **call.get("extra", {})}


def _function_call(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call["id"], "name": call["name"], "arguments": call["arguments"]}

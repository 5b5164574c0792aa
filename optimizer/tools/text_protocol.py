"""Speak tools in plain text, for servers without a tools API and for people.

A call is a line `TOOL: name`, below it its arguments as `name: value` lines, and below them the kernel: one fenced
block with the complete file or one for each marked block, or SEARCH/REPLACE blocks. An answer without such a line ends
the question.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from optimizer.agents.code_blocks import AnswerError, fence_after, has_edits, split_blocks
from optimizer.agents.kernel_answers import language_named
from optimizer.llm.port import RequestedTool, ToolSpec

_TOOL = re.compile(r"^\s{0,3}(?:\*\*|`)?TOOL:(?:\*\*)?[ \t]*`?(?P<name>[\w-]{1,40})`?(?:\*\*)?[ \t]*$")
_ARGUMENT = re.compile(r"^\s{0,3}(?P<name>[a-z][a-z_]{0,39}):[ \t]*(?P<value>.*)$")

# Arguments that the blocks of code below a call replace.
_IN_BLOCKS = frozenset({"source", "blocks", "edits", "language"})

INSTRUCTION = """\
## How to call a tool

Write a line `TOOL: name`, below it its arguments as `name: value` lines, and below them, where the tool takes a \
kernel, either {kernel} or SEARCH/REPLACE blocks. A tool that gets no kernel takes that of your last call. \
SEARCH/REPLACE blocks change that one, or before it the kernel that you were given to change.{limit}

Several calls may follow each other. End your message after the last call; the results come with the next message. For \
example:

TOOL: build
```
{content}
```

When the kernel of your last call is the one that you want to answer with, submit it without repeating its code:

TOOL: submit
title: a few words
report: what you did and why

An answer without a `TOOL:` line is a submission too. It has to contain the kernel, in the form that is described \
above, where SEARCH/REPLACE blocks change the source that you were given."""

_WHOLE = {"kernel": "one fenced code block with the complete file", "limit": "", "content": "the complete file"}
_MARKED = {
    "kernel": "one fenced code block for each marked block, in their order,",
    "limit": " They may only change lines inside the marked blocks. A complete file is accepted too if it changes "
    "no other line.",
    "content": "the new content of the first marked block, then a code block for each further one",
}


def instruction(tools: Sequence[ToolSpec]) -> str:
    """Return how tools are called in text, with a list of them."""
    in_blocks = any("blocks" in tool.schema.get("properties", {}) for tool in tools)
    return "\n\n".join([INSTRUCTION.format(**(_MARKED if in_blocks else _WHOLE)), *map(_described, tools)])


def parse_calls(text: str) -> list[RequestedTool]:
    """Return the tool calls in an answer, in order. An answer without any returns an empty list."""
    return [_call(name, body) for name, body in _sections(text)[1:]]


def words_before(text: str) -> str:
    """Return what an answer says before its first tool call."""
    return "\n".join(_sections(text)[0][1])


def call_with(name: str, kernel: str) -> str:
    """Return the call of a tool with a kernel that is marked as one already."""
    return f"TOOL: {name}\n{kernel}"


def _sections(text: str) -> list[tuple[str, list[str]]]:
    """Split an answer into the lines before its first call, under an empty name, and the lines below each call.

    Lines inside fenced blocks never begin a call.
    """
    found: list[tuple[str, list[str]]] = [("", [])]
    fence = ""
    for line in text.replace("\r\n", "\n").split("\n"):
        fence = fence_after(line, fence)
        match = None if fence else _TOOL.match(line)
        if match:
            found.append((match["name"], []))
        else:
            found[-1][1].append(line)
    return found


def _call(name: str, body: list[str]) -> RequestedTool:
    arguments: dict[str, Any] = {}
    read = 0
    while read < len(body) and (match := _ARGUMENT.match(body[read])):
        arguments[match["name"]] = match["value"].strip()
        read += 1
    try:
        arguments |= _kernel("\n".join(body[read:]))
    except AnswerError as error:
        return RequestedTool(name, arguments, fault=str(error))
    return RequestedTool(name, arguments)


def _kernel(text: str) -> dict[str, Any]:
    """Return the kernel in the text below a call as arguments. Raises AnswerError."""
    if has_edits(text):
        return {"edits": text}
    blocks, _ = split_blocks(text)
    if not blocks:
        return {}
    if len(blocks) > 1:
        return {"blocks": [block.text for block in blocks]}
    label = language_named(blocks[0].info)
    return {"source": blocks[0].text} | ({"language": label.value} if label else {})


def _described(tool: ToolSpec) -> str:
    fields = {name: field for name, field in tool.schema.get("properties", {}).items() if name not in _IN_BLOCKS}
    lines = [f"- `{name}`: {field.get('description', '')}" for name, field in fields.items()]
    takes = ["Takes a kernel."] if "source" in tool.schema.get("properties", {}) else []
    return "\n".join([f"### {tool.name}\n\n{tool.description}", *takes, *lines])

"""Present the turns and tool calls of a question to its readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.text import Truncator

from optimizer.calls.conversation import spent_by, toolbox_of, turns_of
from optimizer.models import CallState, CallTurn, LlmCall, ToolCall, ToolState
from optimizer.tools.text_protocol import words_before

# Arguments that hold the kernel, which is shown complete.
KERNEL_ARGUMENTS = frozenset({"source", "blocks", "edits"})
HEADLINE_CHARS = 100


@dataclass(frozen=True)
class ToolLine:
    """Hold one tool call. `seconds` is the time from the call to its result, None while there is none."""

    row: ToolCall
    arguments: Sequence[tuple[str, str]]
    seconds: float | None

    @property
    def is_open(self) -> bool:
        """Return True while the result is awaited."""
        return not ToolState(self.row.state).is_terminal

    @property
    def headline(self) -> str:
        """Return the outcome in a few words, or what was asked for where the outcome is a text to read."""
        asked = dict(self.arguments)
        about = asked.get("query") or asked.get("number", "")
        return str(self.row.summary.get("headline", "")) or Truncator(about).chars(HEADLINE_CHARS)


@dataclass(frozen=True)
class TurnLine:
    """Hold one turn: what the model wrote, and its tool calls."""

    words: str
    tools: Sequence[ToolLine]


@dataclass(frozen=True)
class Transcript:
    """Hold the whole conversation. `used` says how much of the limits it took, `doing` what happens at present.

    `is_moving` is True while a model or its tools are at work, False while a person is awaited and at the end.
    """

    turns: Sequence[TurnLine]
    used: str
    is_moving: bool
    doing: str


def transcript_of(call: LlmCall) -> Transcript:
    """Return the turns of the question up to this attempt."""
    turns = list(turns_of(call).prefetch_related("tool_calls"))
    if not turns:
        return Transcript([], "", False, "")
    state = CallState(call.state)
    is_moving = not state.is_terminal and state != CallState.WAITING
    return Transcript([_turn(turn) for turn in turns], _used(call), is_moving, state.label.lower())


def _used(call: LlmCall) -> str:
    limits, spent = toolbox_of(call).limits, spent_by(call)
    return (
        f"{spent.calls} of {limits.calls} tool calls, {spent.device_s:.1f} of {limits.device_s:g} s of the device, "
        f"{spent.tokens:,} of {limits.tokens:,} tokens"
    )


def _turn(turn: CallTurn) -> TurnLine:
    words = turn.text if turn.native else words_before(turn.text)
    return TurnLine(words.strip(), [_tool(row) for row in turn.tool_calls.all()])


def _tool(row: ToolCall) -> ToolLine:
    shown = [(name, str(value)) for name, value in row.arguments.items() if name not in KERNEL_ARGUMENTS]
    seconds = (row.finished_at - row.created_at).total_seconds() if row.finished_at else None
    return ToolLine(row, shown, seconds)

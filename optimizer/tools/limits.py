"""Limit what one question may spend on tools: calls, seconds of the device, tokens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Hold the limits of one question."""

    calls: int
    device_s: float
    tokens: int


@dataclass(frozen=True)
class Spent:
    """Hold what a question has spent so far. Refused calls count, so that a model that only makes such calls ends.

    Calls that the machine has failed cost nothing and are counted apart.
    """

    calls: int = 0
    device_s: float = 0.0
    tokens: int = 0
    failures: int = 0


def used_up(limits: Limits, spent: Spent) -> str:
    """Return in words which limit ends all work with tools, or an empty text.

    Without device time, kernels can still be built.
    """
    if spent.calls >= limits.calls:
        return f"All {limits.calls} tool calls of this question are used up."
    # A machine that always fails must not be asked for ever.
    if spent.failures >= limits.calls:
        return f"The machine has failed {spent.failures} tool calls of this question."
    if spent.tokens >= limits.tokens:
        return f"All {limits.tokens:,} tokens of this question are used up."
    return ""


def device_used_up(limits: Limits, spent: Spent) -> str:
    """Return in words that the limit of device time is reached, or an empty text."""
    if spent.device_s < limits.device_s:
        return ""
    return f"All {limits.device_s:g} seconds of the device of this question are used up."


def left_in_words(limits: Limits, spent: Spent) -> str:
    """Return what is left, for the model: it plans better when it knows."""
    if reason := used_up(limits, spent):
        return f"{reason} Submit a kernel now."
    calls = limits.calls - spent.calls
    left = f"Left for this question: {calls} tool call{'' if calls == 1 else 's'}"
    if reason := device_used_up(limits, spent):
        return f"{reason} {left}, of tools that run no kernel."
    return f"{left}, {limits.device_s - spent.device_s:.0f} s of the device."

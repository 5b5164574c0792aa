"""Define the interface of a provider: a request goes in, a completion or a named failure comes out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optimizer.text.tokens import tokens_of

MAX_ANSWER_CHARACTERS = 2_000_000

# Besides `role` and `content`, an assistant's message may have `tool_calls` and `items`, and the message of a tool
# `tool_call_id` and `name`.
Message = Mapping[str, Any]
OnToken = Callable[[str], None]
Cancelled = Callable[[], bool]


@dataclass(frozen=True)
class ToolSpec:
    """Describe a tool to a model. `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True)
class RequestedTool:
    """Hold a tool call as a model wrote it.

    `arguments` are None where they are no JSON object; `fault` then says why. `reference` is the provider's id of the
    call, and `extra` what the provider wants back with it.
    """

    name: str
    arguments: Mapping[str, Any] | None
    reference: str = ""
    fault: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CompletionRequest:
    """Describe one question.

    `schema` is the JSON schema that the answer must match, or None for plain text. `temperature` and `effort` of None
    leave the value to the server. `api` is chat or responses. `key`, `role` and `turn` select a recorded answer.
    `tools` may be called instead of answering; `tools_in_text` describes them to a server without a tools API.
    """

    messages: Sequence[Message]
    model: str = ""
    temperature: float | None = None
    effort: str | None = None
    max_tokens: int | None = None
    schema: Mapping[str, Any] | None = None
    schema_name: str = "answer"
    api: str = "chat"
    timeout_s: float = 600.0
    key: str = ""
    role: str = ""
    attempt: int = 1
    turn: int = 0
    tools: Sequence[ToolSpec] = ()
    tools_in_text: str = ""


@dataclass(frozen=True)
class Usage:
    """Hold the token counts reported by the server; None where it did not report one.

    `prompt` includes `cached`, and `answer` includes `reasoning`.
    """

    prompt: int | None = None
    answer: int | None = None
    cached: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True)
class Try:
    """Describe a request that produced nothing and was sent again: the error, and the pause before the next try."""

    error: str
    waited_s: float = 0.0


@dataclass(frozen=True)
class Completion:
    """Hold an answer as it came.

    `finish` is stop, length, refusal or filter. `tool_calls` are the calls made through the server's tools API, and
    `items` opaque parts that it wants back with the next request. `dropped` names the optional parameters that the
    server refused and without which the request was repeated. `submitted` means that `text` is a complete kernel that
    was submitted through a tool, whatever the form of an answer.
    """

    text: str
    usage: Usage = Usage()
    finish: str = "stop"
    model: str = ""
    refusal: str = ""
    first_token_s: float | None = None
    duration_s: float | None = None
    tries: tuple[Try, ...] = ()
    dropped: tuple[str, ...] = ()
    recorded: bool = False
    same_prompt: bool | None = None
    request_id: str = ""
    tool_calls: tuple[RequestedTool, ...] = ()
    submitted: bool = False
    items: tuple[Mapping[str, Any], ...] = ()


class ProviderError(Exception):
    """Report that the provider gave no answer.

    `partial` is the text that had arrived. Where it is not empty, or `maybe_spent` is set, tokens may have been paid
    for. `tries` are the earlier attempts.
    """

    def __init__(
        self, message: str, *, partial: str = "", maybe_spent: bool = False, tries: tuple[Try, ...] = ()
    ) -> None:
        super().__init__(message)
        self.partial = partial
        self.maybe_spent = maybe_spent or bool(partial)
        self.tries = tries


class ProviderRefusedError(ProviderError):
    """Report a refusal that asking again will not change: wrong key, unknown model, forbidden address."""


class ProviderUnavailableError(ProviderError):
    """Report that the server did not answer after all retries."""


class InterruptedStreamError(ProviderError):
    """Report that the answer broke off: the stream was cut, stopped sending, or exceeded its time limit."""


class CallCancelledError(ProviderError):
    """Report that the caller no longer wants the answer."""


class Provider(ABC):
    """Answer requests. Each kind is a subclass that is registered in `optimizer.calls.registry`."""

    @abstractmethod
    def complete(self, request: CompletionRequest, *, on_token: OnToken, cancelled: Cancelled) -> Completion:
        """Return the answer to `request`. Raises ProviderError.

        `on_token` receives pieces of the answer in order as they arrive. `cancelled` is polled a few times per second
        and may end the request. Both are called in the caller's thread, which may use the database.
        """


def estimated_tokens(messages: Sequence[Message], answer: str) -> int:
    """Estimate tokens from characters: for budgets, where a server reports no usage."""
    return tokens_of(sum(map(_characters, messages)) + len(answer))


def _characters(message: Message) -> int:
    calls = message.get("tool_calls", ())
    return len(message.get("content") or "") + sum(len(call["name"]) + len(call["arguments"]) for call in calls)
